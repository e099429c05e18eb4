"""Embed the texts of one commit, and name those that cannot be embedded."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from corpora.documents import Document
from service.embedding.background import BackgroundEmbedder
from service.embedding.embedder import UnusableInputError
from service.index.rows.record import Encoding, encoded


@dataclass(slots=True)
class Work:
    """Documents of one commit.

    Attributes:
        sources: all of them.
        known: encodings that the index holds already, by id.
    """

    sources: list[Document]
    known: dict[str, Encoding]

    @property
    def new(self) -> dict[str, str]:
        """Texts to embed, by id."""
        return {source.id: source.text for source in self.sources if source.id not in self.known}


@dataclass(slots=True)
class Encoded:
    """What became of the texts of a ``Work``.

    Attributes:
        encodings: by id.
        refused: a line for each text that could not be embedded.
        tokens: embedded, special tokens not counted.
    """

    encodings: dict[str, Encoding] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    tokens: int = 0


class Encoder(Protocol):
    """Embeds what is new of each work; the order may change."""

    def __call__(self, works: AsyncIterator[Work]) -> AsyncIterator[tuple[Work, Encoded]]: ...


def here(embedder: BackgroundEmbedder) -> Encoder:
    """An encoder in this process, one work after the other."""

    async def encode(works: AsyncIterator[Work]) -> AsyncIterator[tuple[Work, Encoded]]:
        async for work in works:
            yield work, await encode_texts(embedder, work.new)

    return encode


async def encode_texts(embedder: BackgroundEmbedder, texts: Mapping[str, str]) -> Encoded:
    """Encodings of texts by id.

    Raises:
        EngineFailedError: from the batcher.
    """
    result = Encoded()
    for name, outcome in zip(texts, await embedder(list(texts.values())), strict=True):
        if isinstance(outcome, UnusableInputError):
            result.refused.append(f"{name}: {outcome.reason}")
        else:
            result.encodings[name] = encoded(outcome)
            result.tokens += outcome.tokens
    return result
