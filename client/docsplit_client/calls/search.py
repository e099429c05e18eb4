"""Searches of an index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from docsplit_client.answers import Compared, Faceted, Hit, Passages
from docsplit_client.calls.call import Call, parsed, path, several
from docsplit_client.options import (
    CompareOptions,
    DuplicatesOptions,
    PassagesOptions,
    Query,
    SearchOptions,
    SimilarOptions,
)
from docsplit_client.stored import Groups, Match


def similar(index: str, **options: Unpack[SimilarOptions]) -> Call[list[Hit]]:
    """Documents that resemble a ``text`` or a stored document (``id``), the best first."""
    return Call("POST", "/similar", parsed, {"index": index, **options})


def similar_each(
    index: str, queries: Sequence[Query], **options: Unpack[SearchOptions]
) -> Call[list[list[Hit]]]:
    """The hits of each of up to 100 queries."""
    return Call("POST", "/similar", parsed, {"index": index, "queries": [*queries], **options})


def similar_faceted(
    index: str, facets: Sequence[str], **options: Unpack[SimilarOptions]
) -> Call[Faceted]:
    """Hits, and how many documents have each value of the declared fields ``facets``."""
    body = {"index": index, "facets": [*several(facets, "facets")], **options}
    return Call("POST", "/similar", parsed, body)


def passages(index: str, **options: Unpack[PassagesOptions]) -> Call[list[Passages]]:
    """Passages of documents that fit a ``text``, a stored document (``id``) or a part of it."""
    return Call("POST", "/passages", parsed, {"index": index, **options})


def compare(index: str, other: str, **options: Unpack[CompareOptions]) -> Call[Compared]:
    """The windows that make a ``text`` or a stored document (``id``) resemble another one."""
    body = {"other": other, **options}
    return Call("POST", path("indexes", index, "compare"), parsed, body)


def duplicates(index: str, **options: Unpack[DuplicatesOptions]) -> Call[list[Match]]:
    """Near-duplicates of a ``text`` or of a stored document (``id``)."""
    return Call("POST", path("indexes", index, "duplicates"), parsed, {**options})


def duplicate_groups(
    index: str, threshold: float | None = None, limit: int | None = None
) -> Call[Groups]:
    """All groups of near-duplicates. The service reads every text: use ``with_timeout``."""
    return Call(
        "GET", path("indexes", index, "duplicates", threshold=threshold, limit=limit), parsed
    )
