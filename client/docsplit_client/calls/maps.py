"""Maps of indexes in two dimensions, and their topics."""

from __future__ import annotations

from docsplit_client.calls.call import Call, parsed, path
from docsplit_client.maps import DocumentMap, Topics
from docsplit_client.stored import Job


def compute_map(index: str) -> Call[Job]:
    """Compute the map and the topics of an index in a job; ``wait_for_job`` waits for it."""
    return Call("POST", path("indexes", index, "map"), parsed)


def document_map(
    index: str,
    after: str | None = None,
    limit: int | None = None,
    sample: bool | None = None,
    field: str | None = None,
    classifier: str | None = None,
) -> Call[DocumentMap]:
    """One page of the documents on the map of an index, or a random sample of them.

    Args:
        index: its name.
        after: ``next`` of the page before.
        limit: of documents.
        sample: whether to get a random sample in place of a page.
        field: whose values to add.
        classifier: whose labels to add; it reads vectors of the index's bundle.
    """
    page = {"after": after, "limit": limit, "sample": sample}
    place = path("indexes", index, "map", **page, field=field, classifier=classifier)
    return Call("GET", place, parsed)


def topics(index: str) -> Call[Topics]:
    """The topics of the map of an index."""
    return Call("GET", path("indexes", index, "topics"), parsed)
