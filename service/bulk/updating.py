"""Brings an index up to date with the documents of one commit."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from docsplit.corpora.documents import Document
from service.bulk.encoding import Encode, Encoded
from service.index.documents import Index
from service.index.reuse import changed, kept, outline_of, refusal
from service.index.rows.record import record


@dataclass(slots=True)
class Outcome:
    """How an update of some documents ended.

    Attributes:
        written, unchanged: numbers of documents.
        tokens: number of embedded tokens.
        refused: a line for each document that the index cannot hold.
    """

    written: int = 0
    unchanged: int = 0
    tokens: int = 0
    refused: list[str] = field(default_factory=list)


class Updater:
    """Embeds and writes documents; several calls may run at the same time.

    Args:
        index: to write to. While one call embeds, another reads or writes it.
        encode: embeds texts.
        sync: returns when the last commit is durable.
    """

    def __init__(self, index: Index, encode: Encode, sync: Callable[[], Awaitable[None]]) -> None:
        self._index = index
        self._encode = encode
        self._sync = sync
        # a write may move the handle to another version for a moment
        self._turn = asyncio.Lock()

    async def __call__(self, sources: Sequence[Document], encode: Encode | None = None) -> Outcome:
        """Write new and changed documents in one durable commit.

        A document whose digest is in the index is left out. One with the same text but other
        content keeps its vectors.

        Args:
            sources: each id occurs once.
            encode: embeds in place of the updater's own.
        """
        outcome = Outcome()
        fitting = [source for source in sources if self._fits(source, outcome)]
        async with self._turn:
            new = await changed(self._index, fitting)
            encodings = await kept(self._index, {source.id: source.text for source in new})
        outcome.unchanged = len(fitting) - len(new)
        texts = {source.id: source.text for source in new if source.id not in encodings}
        made = await (encode or self._encode)(texts) if texts else Encoded()
        encodings |= made.encodings
        records = [record(s, encodings[s.id], outline_of(s)) for s in new if s.id in encodings]
        if records:
            async with self._turn:
                await self._index.put(records)
                await self._sync()
        outcome.written = len(records)
        outcome.tokens = made.tokens
        outcome.refused += made.refused
        return outcome

    def _fits(self, source: Document, outcome: Outcome) -> bool:
        wrong = refusal(self._index, source)
        if wrong is not None:
            # an id with half a surrogate pair could not be printed
            name = source.id.encode(errors="replace").decode()
            outcome.refused.append(f"{name}: {wrong}")
        return wrong is None
