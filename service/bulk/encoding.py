"""Embeds the texts of one commit, and names the texts that cannot be embedded."""

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
        sources: all documents.
        known: encodings that the index already has, by id.
    """

    sources: list[Document]
    known: dict[str, Encoding]

    @property
    def new(self) -> dict[str, str]:
        """Texts to embed, by id."""
        return {source.id: source.text for source in self.sources if source.id not in self.known}


@dataclass(slots=True)
class Encoded:
    """The results for the texts of a ``Work``.

    Attributes:
        encodings: by id.
        refused: a line for each text that could not be embedded.
        tokens: number of embedded tokens, without special tokens.
    """

    encodings: dict[str, Encoding] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    tokens: int = 0


class Encoder(Protocol):
    """Embeds the new texts of each work; the order may change."""

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
