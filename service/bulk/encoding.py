"""Embed the texts of one batch; a text that cannot be embedded is refused alone."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from corpora.documents import Document
from service.embedding.cache import lasting
from service.embedding.embedder import Embedder, EmptyInputError, TooLongError
from service.index.rows.record import Encoding, encoded

_NEVER = 1e9


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


def here(embedder: Embedder, prompt: str) -> Encoder:
    """An encoder in this process, one work after the other."""

    async def encode(works: AsyncIterator[Work]) -> AsyncIterator[tuple[Work, Encoded]]:
        async for work in works:
            yield work, await encode_texts(embedder, work.new, prompt)

    return encode


async def encode_texts(embedder: Embedder, texts: Mapping[str, str], prompt: str) -> Encoded:
    """Encodings of texts by id.

    Raises:
        EngineFailedError: from the batcher.
    """
    result = Encoded()
    await _encode(embedder, list(texts.items()), prompt, result)
    return result


async def _encode(
    embedder: Embedder, texts: Sequence[tuple[str, str]], prompt: str, result: Encoded
) -> None:
    if not texts:
        return
    try:
        due = time.monotonic() + _NEVER
        with lasting.work():
            found = await embedder.embed([text for _, text in texts], due, prompt=prompt)
    except (EmptyInputError, TooLongError) as error:
        if len(texts) == 1:
            result.refused.append(f"{texts[0][0]}: {str(error).removeprefix('input 0 ')}")
            return
        for one in texts:
            await _encode(embedder, [one], prompt, result)
        return
    for (name, _), document in zip(texts, found.documents, strict=True):
        result.encodings[name] = encoded(document)
        result.tokens += document.tokens
