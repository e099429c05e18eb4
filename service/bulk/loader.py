"""Embed documents in batches and write each batch, passing over what is there unchanged."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from service.bulk.sources import Source
from service.documents.embedder import Embedder, EmptyInputError, TooLongError
from service.index import fields
from service.index.documents import Index
from service.index.faults import InvalidError
from service.index.record import digest
from service.index.reuse import Encoding, encoded, kept, record

# a batch is one commit; more characters would not fit the queue of tokens
BATCH_CHARACTERS = 400_000
BATCH_DOCUMENTS = 256
_NEVER = 1e9


@dataclass(slots=True)
class Report:
    """What became of the documents."""

    written: int = 0
    unchanged: int = 0
    repeated: int = 0
    tokens: int = 0
    refused: list[str] = field(default_factory=list)

    @property
    def seen(self) -> int:
        """All documents so far."""
        return self.written + self.unchanged + self.repeated + len(self.refused)


async def load_documents(
    index: Index,
    embedder: Embedder,
    sources: Iterable[Source],
    prompt: str,
    progress: Callable[[Report], None],
) -> Report:
    """Bring an index up to date with documents; each batch is durable before the next begins.

    A document whose digest is in the index is passed over, so a run that was ended goes on where it
    stopped; one of which the text alone is unchanged keeps its vectors. Of several documents of one
    id in a run the first counts.
    """
    report = Report()
    seen: set[str] = set()
    for batch in _batches(sources):
        fresh = []
        for source in batch:
            if source.id in seen:
                report.repeated += 1
            else:
                seen.add(source.id)
                fresh.append(source)
        held = await index.digests([source.id for source in fresh])
        changed = [s for s in fresh if held.get(s.id) != _digest(index, s)]
        report.unchanged += len(fresh) - len(changed)
        changed = [source for source in changed if _fits(index, source, report)]
        known = await kept(index, {source.id: source.text for source in changed})
        new = [source for source in changed if source.id not in known]
        known |= await _embed(embedder, new, prompt, report)
        records = [record(s, known[s.id]) for s in changed if s.id in known]
        if records:
            await index.put(records)
        report.written += len(records)
        progress(report)
    return report


def _fits(index: Index, source: Source, report: Report) -> bool:
    try:
        fields.check(index.identity.fields, source.metadata, 0)
    except InvalidError as error:
        report.refused.append(f"{source.id}: {str(error).removeprefix('document 0: ')}")
        return False
    return True


async def _embed(
    embedder: Embedder, sources: list[Source], prompt: str, report: Report
) -> dict[str, Encoding]:
    if not sources:
        return {}
    try:
        due = time.monotonic() + _NEVER
        result = await embedder.embed([s.text for s in sources], due, prompt=prompt)
    except (EmptyInputError, TooLongError) as error:
        if len(sources) == 1:
            report.refused.append(f"{sources[0].id}: {str(error).removeprefix('input 0 ')}")
            return {}
        found: dict[str, Encoding] = {}
        for source in sources:
            found |= await _embed(embedder, [source], prompt, report)
        return found
    report.tokens += sum(document.tokens for document in result.documents)
    return {s.id: encoded(d) for s, d in zip(sources, result.documents, strict=True)}


def _batches(sources: Iterable[Source]) -> Iterator[list[Source]]:
    batch: list[Source] = []
    size = 0
    for source in sources:
        if batch and (size + len(source.text) > BATCH_CHARACTERS or len(batch) == BATCH_DOCUMENTS):
            yield batch
            batch, size = [], 0
        batch.append(source)
        size += len(source.text)
    if batch:
        yield batch


def _digest(index: Index, source: Source) -> str:
    return digest(source.text, source.title, source.metadata, source.links, index.identity.revision)
