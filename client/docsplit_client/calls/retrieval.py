"""A search whose hits carry their texts, as frameworks expect them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from docsplit_client.calls.batches import get_all
from docsplit_client.calls.call import Steps
from docsplit_client.calls.search import passages as find_passages
from docsplit_client.calls.search import similar
from docsplit_client.options import Filter
from docsplit_client.stored import DocumentHead

Mode = Literal["cosine", "words", "hybrid"]

# most documents in one answer of POST /passages
MOST_PASSAGES = 100


@dataclass(frozen=True, slots=True)
class Retrieved:
    """A document or a passage that fits a query.

    Attributes:
        id: of the document.
        text: of the document or the passage.
        metadata: of the document, its title included. That of a passage also has ``document``,
            the id, and the offsets ``start`` and ``end``.
        score: by the mode of the search.
    """

    id: str
    text: str
    metadata: dict[str, Any]
    score: float


def retrieve(
    index: str,
    query: str,
    top_k: int = 10,
    *,
    passages: bool = False,
    mode: Mode = "hybrid",
    filter: Filter | None = None,  # noqa: A002
    diversity: float = 0,
) -> Steps[list[Retrieved]]:
    """Documents or passages of an index that fit a query, the best first, with their texts.

    It leaves out what is deleted between its two requests.

    Raises:
        ValueError: passages with ``diversity``, which is for documents.
    """
    if passages and diversity:
        raise ValueError("diversity: the service has it for documents, not for passages")
    if not passages:
        hits = yield similar(
            index, text=query, top_k=top_k, mode=mode, filter=filter, diversity=diversity
        )
        found = yield from get_all(index, [hit["id"] for hit in hits])
        return [
            Retrieved(one["id"], one.get("text") or "", described(one), hit["score"])
            for hit in hits
            if (one := found.get(hit["id"])) is not None
        ]
    most = min(top_k, MOST_PASSAGES)
    groups = yield find_passages(index, text=query, top_k=most, mode=mode, filter=filter)
    found = yield from get_all(index, [group["id"] for group in groups])
    result = []
    for group in groups:
        document = found.get(group["id"])
        if document is None:
            continue
        for passage in group["passages"]:
            start, end = passage["start"], passage["end"]
            place = {"document": group["id"], "start": start, "end": end}
            text = (document.get("text") or "")[start:end]
            metadata = {**described(document), **place}
            result.append(Retrieved(group["id"], text, metadata, passage["score"]))
    return sorted(result, key=lambda one: -one.score)[:top_k]


def described(document: DocumentHead) -> dict[str, Any]:
    """The metadata of a document, with its title if it has one."""
    title = {} if document["title"] is None else {"title": document["title"]}
    return {**title, **document["metadata"]}
