"""The requests to the service as values: a function for each, and for several of them."""

from docsplit_client.calls import (
    batches,
    classifiers,
    documents,
    embedding,
    indexes,
    jobs,
    lines,
    links,
    maps,
    retrieval,
    search,
)

__all__ = [
    "batches",
    "classifiers",
    "documents",
    "embedding",
    "indexes",
    "jobs",
    "lines",
    "links",
    "maps",
    "retrieval",
    "search",
]
