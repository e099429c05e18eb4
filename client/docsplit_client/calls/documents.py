"""Documents of an index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from docsplit_client.calls.call import Call, nothing, parsed, path, several
from docsplit_client.options import Filter, NewDocument, Patch, UpsertOptions
from docsplit_client.stored import Deleted, Document, Got, Page, Patched, Upserted, Windows


def upsert(
    index: str, documents: Sequence[NewDocument], **options: Unpack[UpsertOptions]
) -> Call[Upserted]:
    """Embed and store documents; the answer comes when all are durable."""
    conditional = any(one.get("if_version") is not None for one in documents)
    # `refuse` would refuse what its own first try wrote
    safe = not conditional and options.get("on_duplicate") != "refuse"
    body = {"documents": [*documents], **options}
    return Call("POST", path("indexes", index, "documents"), parsed, body, idempotent=safe)


def list_documents(index: str, after: str | None = None, limit: int | None = None) -> Call[Page]:
    """One page of documents in the order of their ids, without texts."""
    return Call("GET", path("indexes", index, "documents", after=after, limit=limit), parsed)


def document(index: str, id: str) -> Call[Document]:  # noqa: A002
    """One document."""
    return Call("GET", path("indexes", index, "documents", id), parsed)


def document_windows(index: str, id: str) -> Call[Windows]:  # noqa: A002
    """The windows of one document, with the page and the heading where each begins."""
    return Call("GET", path("indexes", index, "documents", id, "windows"), parsed)


def get_documents(index: str, ids: Sequence[str], text: bool = True) -> Call[Got]:
    """Documents of up to 1,000 ids, as far as the answer has room."""
    body = {"ids": [*several(ids, "ids")], "text": text}
    return Call("POST", path("indexes", index, "documents", "get"), parsed, body)


def patch_document(
    index: str,
    id: str,  # noqa: A002
    patch: Patch,
    if_version: str | None = None,
) -> Call[Patched]:
    """Change the title, metadata or links of a document, over ``if_version`` if it is given."""
    return Call(
        "PATCH",
        path("indexes", index, "documents", id),
        parsed,
        patch,
        _condition(if_version),
        idempotent=if_version is None,
    )


def delete_document(
    index: str,
    id: str,  # noqa: A002
    if_version: str | None = None,
) -> Call[None]:
    """Delete one document, in the version ``if_version`` if it is given."""
    return Call(
        "DELETE",
        path("indexes", index, "documents", id),
        nothing,
        headers=_condition(if_version),
    )


def delete_documents(
    index: str,
    ids: Sequence[str] | None = None,
    filter: Filter | None = None,  # noqa: A002
    dry_run: bool = False,
) -> Call[Deleted]:
    """Delete the documents of up to 1,000 ids, or all that pass a filter."""
    named = None if ids is None else [*several(ids, "ids")]
    body = {"ids": named, "filter": filter, "dry_run": dry_run}
    # a second try counts only the rest
    place = path("indexes", index, "documents", "delete")
    return Call("POST", place, parsed, body, idempotent=dry_run)


def _condition(version: str | None) -> dict[str, str]:
    if version is None:
        return {}
    return {"if-match": version if version == "*" else f'"{version}"'}
