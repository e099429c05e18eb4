"""The tools: what an agent can do, each by requests to the REST routes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from features.mcp import arguments, resources, results
from features.mcp.inner import Caller, RefusedError

PAIRS = 3


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool.

    Attributes:
        run: makes the structured result from a request to /mcp and the tool's arguments.
        writes: whether it changes an index; then only a key that may write sees it.
    """

    name: str
    description: str
    run: Callable[[Caller, Any], Awaitable[dict[str, Any]]]
    arguments: type[arguments.Arguments]
    result: type[BaseModel]
    writes: bool = False


async def list_indexes(caller: Caller, given: arguments.Indexes) -> dict[str, Any]:
    """Names of indexes, and the fields and counts of those that the key may read."""
    names, following = await resources.indexes(caller, given.after)
    described = []
    for name in names:
        try:
            described.append(await caller.get("indexes", name))
        except RefusedError:
            # the key may write to the index but not read it, or the index was just deleted
            continue
    return {"indexes": names, "described": described, "next": following}


async def find_documents(caller: Caller, given: arguments.Documents) -> dict[str, Any]:
    """POST /similar."""
    return {"hits": await caller.post("similar", body=given.model_dump())}


async def find_citations(caller: Caller, given: arguments.Citations) -> dict[str, Any]:
    """POST /similar in the mode citation."""
    return {"hits": await caller.post("similar", body={**given.model_dump(), "mode": "citation"})}


async def find_passages(caller: Caller, given: arguments.Passages) -> dict[str, Any]:
    """POST /passages."""
    return {"documents": await caller.post("passages", body=given.model_dump())}


async def explain_pair(caller: Caller, given: arguments.Pair) -> dict[str, Any]:
    """The windows of two documents that resemble each other most."""
    if (given.text is None) == (given.id is None):
        raise RefusedError("give either text or id")
    body = {**given.model_dump(include={"text", "id"}), "other": given.document, "top_k": PAIRS}
    # of the stored windows, which cost nothing to compare
    found = await caller.post("indexes", given.index, "compare", body=body)
    document = (await resources.document(caller, given.index, given.document))["text"]
    query = given.text or ""
    if given.id is not None:
        query = (await resources.document(caller, given.index, given.id))["text"]
    pairs = [
        {
            "cosine": pair["cosine"],
            "query": _part(query, pair["query"]),
            "document": _part(document, pair["document"]),
        }
        for pair in found["pairs"]
    ]
    return {"cosine": found["cosine"], "pairs": pairs}


async def classify(caller: Caller, given: arguments.Classify) -> dict[str, Any]:
    """POST /classify of one text, with the windows that decided."""
    body = {**given.model_dump(exclude={"text"}), "inputs": given.text, "explain": True}
    labels: dict[str, Any] = (await caller.post("classify", body=body))[0]
    return labels


async def get_document(caller: Caller, given: arguments.Part) -> dict[str, Any]:
    """A part of a document's text, its title, metadata and links."""
    found = await resources.document(caller, given.index, given.id)
    whole = found["text"]
    start = min(given.start, len(whole))
    end = min(start + given.characters, len(whole))
    links = found["links"]
    shown = links[given.links_start : given.links_start + arguments.MOST_LINKS]
    part = {"characters": len(whole), "start": start, "end": end, "text": whole[start:end]}
    return {**found, **part, "links": shown, "link_count": len(links)}


async def upsert_documents(caller: Caller, given: arguments.Upsert) -> dict[str, Any]:
    """POST /indexes/{name}/documents."""
    body = given.model_dump(exclude={"index"})
    answer = await caller.post("indexes", given.index, "documents", body=body)
    return {"documents": answer["upserted"], "done": "stored"}


async def delete_documents(caller: Caller, given: arguments.Delete) -> dict[str, Any]:
    """POST /indexes/{name}/documents/delete."""
    body = given.model_dump(exclude={"index"})
    answer = await caller.post("indexes", given.index, "documents", "delete", body=body)
    return {"documents": answer["deleted"], "done": "deleted"}


def _part(text: str, span: dict[str, Any]) -> dict[str, Any]:
    return {**span, "text": text[span["start"] : span["end"]]}


TOOLS = [
    Tool(
        "list_indexes",
        "List the indexes of documents, with their number of documents and the metadata fields "
        "that filters can name. Call it first. A result has at most 50; next leads to more.",
        list_indexes,
        arguments.Indexes,
        results.Indexes,
    ),
    Tool(
        "find_documents",
        "Find documents of an index that resemble a text of any length, or a stored document by "
        "its id. With explain, each hit shows the places (start, end) of both documents that "
        "resemble each other most.",
        find_documents,
        arguments.Documents,
        results.Hits,
    ),
    Tool(
        "find_passages",
        "Find passages that fit a question or a text, or a stored document (id) or a part of it "
        "(start, end). Each passage has its place (start, end) in the document and a snippet; "
        "get_document reads the text around it.",
        find_passages,
        arguments.Passages,
        results.Passages,
    ),
    Tool(
        "find_citations",
        "Predict what a text or a stored document (id) cites, or what cites it, with "
        "probabilities. get_document shows the known links of a document.",
        find_citations,
        arguments.Citations,
        results.Hits,
    ),
    Tool(
        "explain_pair",
        "Show why a document of an index resembles a text, or another document (id) of the index: "
        "the cosine, and the pairs of passages that are most alike, with their places and texts.",
        explain_pair,
        arguments.Pair,
        results.Pairs,
    ),
    Tool(
        "classify",
        "Label a text with a trained classifier: labels with calibrated probabilities, and the "
        "passages that decided. Without a name it uses the only classifier, or lists the names.",
        classify,
        arguments.Classify,
        results.Labels,
    ),
    Tool(
        "get_document",
        "Read a stored document: title, metadata, the ids that it cites (links), and a part of "
        "its text. Ask again with a higher start for more text, and with a higher links_start for "
        "more links.",
        get_document,
        arguments.Part,
        results.DocumentPart,
    ),
    Tool(
        "upsert_documents",
        "Store documents in an index; one with an existing id replaces the former document.",
        upsert_documents,
        arguments.Upsert,
        results.Written,
        writes=True,
    ),
    Tool(
        "delete_documents",
        "Delete documents of an index by their ids.",
        delete_documents,
        arguments.Delete,
        results.Written,
        writes=True,
    ),
]


def offered(caller: Caller) -> dict[str, Tool]:
    """The tools that the caller may use, by name."""
    return {tool.name: tool for tool in TOOLS if caller.may_write or not tool.writes}
