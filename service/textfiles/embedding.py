"""Embeds the texts of a job block by block, after the requests of the service."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from service import executors
from service.embedding import charges
from service.embedding.background import BackgroundEmbedder
from service.embedding.batching.clients import Client
from service.embedding.embedder import Document, Embedded, Embedder, UnusableInputError
from service.errors import EngineFailedError
from service.keys.rate import Bucket
from service.textfiles.progress import Options, Progress
from windowing.pooling import normalise, shorten

if TYPE_CHECKING:
    from service.textfiles.blocks import Outcome
    from service.textfiles.tables import Place, Tables

# share of the engine, relative to a client with requests
WEIGHT = 1 / 16


@dataclass(frozen=True, slots=True)
class Model:
    """A loaded bundle.

    Attributes:
        count: receives every batch of embedded texts.
    """

    embedder: Embedder
    count: Callable[[Embedded], None]


class Models(Protocol):
    """The served bundles."""

    @property
    def revisions(self) -> list[str]:
        """Their revisions."""
        ...

    async def model(self, revision: str, /) -> Model:
        """The bundle of a served revision; loads it.

        Raises:
            UnavailableError: it cannot be loaded.
        """


async def embed(
    tables: Tables,
    place: Place,
    progress: Progress,
    model: Model,
    owner: str,
    payer: Callable[[str], Bucket | None],
) -> None:
    """Write the vectors of all texts of a job that are not written yet; then remove the texts.

    Args:
        owner: name of the client that the work is for.
        payer: what the work for that client is charged to.
    """
    from service.textfiles.blocks import result, unpacked
    from service.textfiles.tables import Block, Written

    options = progress.options
    embedder = BackgroundEmbedder(
        model.embedder,
        options.prompt,
        model.count,
        client=Client(owner, WEIGHT),
        truncate=options.truncate,
        side=options.side,
    )
    block, rows, refused = await tables.find(place) or Written(0, 0, 0)
    progress.embedded, progress.refused = rows - refused, refused
    for number in range(block, progress.blocks):
        texts = await executors.STORE.run(unpacked, await tables.texts(place, number))
        outcomes: list[Outcome] = []
        with charges.charging(payer(owner)):
            await charges.out_of_debt()
            async for one in _outcomes(embedder, texts.texts, options):
                outcomes.append(one)
                failed = isinstance(one, str)
                progress.refused += failed
                progress.embedded += not failed
        data = await executors.STORE.run(result, texts.ids, outcomes, options.width)
        refused = sum(isinstance(one, str) for one in outcomes)
        await tables.add_vectors(place, Block(number, len(outcomes), refused, data))
    await tables.drop(place, "texts")
    progress.bytes = progress.vector_bytes(progress.texts)


async def _outcomes(
    embedder: BackgroundEmbedder, texts: Sequence[str], options: Options
) -> AsyncIterator[Outcome]:
    done = 0
    try:
        async for outcome in embedder.each(texts):
            yield _outcome(outcome, options)
            done += 1
    except EngineFailedError:
        if len(texts) == 1:
            yield "the engine failed on the text"
            return
        # one of them may be the cause
        for text in texts[done:]:
            async for one in _outcomes(embedder, [text], options):
                yield one


def _outcome(found: Document | UnusableInputError, options: Options) -> Outcome:
    if isinstance(found, UnusableInputError):
        return f"the text {found.reason}"
    vector = found.vector()
    if options.shorten:
        vector = shorten(vector[None], options.width)
        return vector.reshape(-1)
    return normalise(vector) if options.normalize else vector
