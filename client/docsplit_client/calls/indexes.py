"""Indexes, their aliases and their citation heads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import httpx2

from docsplit_client.calls.call import Call, nothing, parsed, path, raw
from docsplit_client.stored import Alias, CitationHead, FieldType, Index, IndexHead


def create_index(
    index: str, fields: Mapping[str, FieldType] | None = None, model: str | None = None
) -> Call[Index | IndexHead]:
    """Create an index whose filters may name ``fields``, or accept one with the same fields.

    ``model`` names the bundle that embeds its documents, the default one without it.
    """
    body: dict[str, Any] = {"fields": {**(fields or {})}}
    if model is not None:
        body["model"] = model
    return Call("PUT", path("indexes", index), parsed, body)


def indexes() -> Call[list[str]]:
    """The names of all indexes that the key may use."""
    return Call("GET", "/indexes", lambda answer: _list(answer, "indexes"))


def index(index: str) -> Call[Index]:
    """The number of documents of an index, its fields and generations."""
    return Call("GET", path("indexes", index), parsed)


def delete_index(index: str) -> Call[None]:
    """Delete an index with its documents."""
    return Call("DELETE", path("indexes", index), nothing)


def delete_generation(index: str, revision: str) -> Call[None]:
    """Delete what another bundle embedded."""
    return Call("DELETE", path("indexes", index, "generations", revision), nothing)


def set_alias(alias: str, index: str) -> Call[Alias]:
    """Create an alias of an index, or switch it to another index."""
    return Call("PUT", path("aliases", alias), parsed, {"index": index})


def aliases() -> Call[list[Alias]]:
    """All aliases of indexes that the key may use."""
    return Call("GET", "/aliases", lambda answer: _list(answer, "aliases"))


def alias(alias: str) -> Call[Alias]:
    """The index that an alias names."""
    return Call("GET", path("aliases", alias), parsed)


def delete_alias(alias: str) -> Call[None]:
    """Remove an alias. Its index stays."""
    return Call("DELETE", path("aliases", alias), nothing)


def train_citation_head(
    index: str,
    inputs: Literal["features", "vectors"] | None = None,
    links: Literal["given", "found", "both"] | None = None,
) -> Call[CitationHead]:
    """Learn from the links of the documents who cites whom: use ``with_timeout``."""
    place = path("indexes", index, "citation", inputs=inputs, links=links)
    return Call("POST", place, parsed, idempotent=False)


def citation_head(index: str) -> Call[CitationHead]:
    """The quality of the citation head of an index."""
    return Call("GET", path("indexes", index, "citation"), parsed)


def citation_network(index: str) -> Call[bytes]:
    """The weights of the citation head, an ``.npz`` archive."""
    return Call("GET", path("indexes", index, "citation", "network"), raw)


def _list(answer: httpx2.Response, name: str) -> list[Any]:
    found: list[Any] = answer.json()[name]
    return found
