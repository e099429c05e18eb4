"""Links of documents, and those that stand in their texts."""

from __future__ import annotations

from typing import Literal, Unpack

from docsplit_client.calls.call import Call, nothing, parsed, path
from docsplit_client.options import FindLinksOptions
from docsplit_client.stored import FoundLinks, Links, MissingPage


def find_links(index: str, **options: Unpack[FindLinksOptions]) -> Call[FoundLinks]:
    """Find the links that stand in the texts. The service reads all: use ``with_timeout``."""
    return Call("POST", path("indexes", index, "links", "find"), parsed, {**options})


def found_links(index: str) -> Call[FoundLinks]:
    """What the last search for links in texts found."""
    return Call("GET", path("indexes", index, "links"), parsed)


def forget_found_links(index: str) -> Call[None]:
    """Forget the links that stand in texts; those that users gave stay."""
    return Call("DELETE", path("indexes", index, "links"), nothing)


def document_links(
    index: str,
    id: str,  # noqa: A002
    after: str | None = None,
    limit: int | None = None,
) -> Call[Links]:
    """One page of the links from and to a document, given ones and those in texts."""
    place = path("indexes", index, "documents", id, "links", after=after, limit=limit)
    return Call("GET", place, parsed)


def missing_citations(
    index: str,
    after: str | None = None,
    documents: int | None = None,
    threshold: float | None = None,
    links: Literal["given", "found", "both"] | None = None,
) -> Call[MissingPage]:
    """One page of citations that seem missing: those of some documents, the likeliest first."""
    place = path(
        *("indexes", index, "links", "missing"),
        after=after,
        documents=documents,
        threshold=threshold,
        links=links,
    )
    return Call("GET", place, parsed)
