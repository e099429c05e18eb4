"""Conditions on versions from headers and ``if_version``, and the answer 412."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Header, Request
from fastapi.responses import Response

from service.errors import InvalidError
from service.index.rows import versions
from service.server.bodies.document_bodies import DocumentIn, MismatchError
from service.server.bodies.encoding import json_response

if TYPE_CHECKING:
    from service.errors import VersionError
    from service.index.rows.versions import Condition

IfMatch = Annotated[
    str | None,
    Header(
        max_length=1024,
        description='write only over this version, e.g. "64a1f0"; * for any version',
    ),
]
IfNoneMatch = Annotated[
    str | None, Header(max_length=1024, description="* to write only if there is no document")
]
IfChanged = Annotated[
    str | None,
    Header(
        alias="if-none-match",
        max_length=1024,
        description='the version that the client has, e.g. "64a1f0": 304 if it is still current',
    ),
]
UNCHANGED: dict[int | str, dict[str, Any]] = {
    304: {"description": "The document still has the version that `if-none-match` names."}
}
MISMATCH: dict[int | str, dict[str, Any]] = {
    412: {"model": MismatchError, "description": "A document has another version."}
}

_TAGS = re.compile(r'\s*(W/)?"([^"]*)"\s*')


def header(if_match: str | None, if_none_match: str | None = None) -> Condition | None:
    """The condition on one document that the headers of a request set.

    Raises:
        InvalidError: a header is malformed.
    """
    if if_none_match is not None:
        if if_none_match.strip() != "*" or if_match is not None:
            raise InvalidError("if-none-match: send only *, and without if-match")
        return "absent"
    if if_match is None:
        return None
    if if_match.strip() == "*":
        return "there"
    accepted: set[int] = set()
    for part in if_match.split(","):
        found = _TAGS.fullmatch(part)
        if found is None:
            raise InvalidError('if-match: send * or a version in quotes, such as "64a1f0"')
        weak, tag = found.groups()
        exact = versions.condition(tag)
        # a weak tag never matches, and * in quotes is not a version
        if weak is None and isinstance(exact, frozenset):
            accepted |= exact
    return frozenset(accepted)


def of_stored(request: Request, if_match: str | None) -> Condition | None:
    """The condition of a change or a deletion, which concern a document that exists.

    Raises:
        InvalidError: a header is malformed, or requires that there is no document.
    """
    if "if-none-match" in request.headers:
        raise InvalidError(
            "if-none-match: only an upsert takes it; name the document's version in if-match"
        )
    return header(if_match)


def unchanged(if_none_match: str | None, version: str) -> bool:
    """Whether a client that reads a document names its current version (RFC 9110, 13.1.2)."""
    if if_none_match is None:
        return False
    parts = [_TAGS.fullmatch(part) for part in if_none_match.split(",")]
    return if_none_match.strip() == "*" or any(part and part[2] == version for part in parts)


def conditions(
    documents: Sequence[DocumentIn], if_match: str | None, if_none_match: str | None
) -> dict[str, Condition]:
    """The conditions of an upsert, by id.

    Raises:
        InvalidError: a header comes with several documents, or with ``if_version``.
    """
    found = {d.id: versions.condition(d.if_version) for d in documents if d.if_version is not None}
    whole = header(if_match, if_none_match)
    if whole is None:
        return found
    if len(documents) > 1 or found:
        raise InvalidError(
            "if-match, if-none-match: send them with one document, and without if_version"
        )
    return {documents[0].id: whole}


def mismatch(
    error: VersionError, ids: Sequence[str], wanted: Mapping[str, Condition] | None = None
) -> Response:
    """The answer to a write whose condition does not hold.

    Args:
        error: names the documents.
        ids: ids of all documents of the request.
        wanted: conditions of an upsert, by id; None for the document of a path.
    """
    places = {name: position for position, name in enumerate(ids)}

    def listed(some: dict[str, int | None]) -> list[dict[str, Any]]:
        found = sorted((places[name], version) for name, version in some.items())
        return [
            {"position": place, "version": None if version is None else versions.text(version)}
            for place, version in found
        ]

    conflicts = listed(dict(error.present))
    first = conflicts[0]
    if first["version"] is None:
        reason = (
            "there is no document of that id, but the condition names a version of it: leave the "
            "condition out, or see whether the id is right"
        )
    elif wanted and wanted.get(ids[first["position"]]) == "absent":
        reason = (
            "there is a document of that id, but the condition requires that there is none: give "
            "another id, or name the document's version in the condition"
        )
    else:
        reason = (
            "the document has another version than the condition names: read it, then write over "
            "its present version"
        )
    content = {
        "error": reason if wanted is None else f"documents.{first['position']}: {reason}",
        "error_type": "VersionMismatch",
        "conflicts": conflicts,
        "written": listed(dict(error.written)),
    }
    headers = {}
    if len(ids) == 1 and first["version"] is not None:
        headers["etag"] = f'"{first["version"]}"'
    return json_response(content, headers, status=412)
