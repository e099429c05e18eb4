"""The common part of all inference routes: readiness, limits, deadline and headers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import numpy as np
from fastapi import Request
from numpy.typing import NDArray

from docsplit.windowing.pooling import normalise, shorten
from docsplit.windowing.tokens import Side
from service import memory
from service.embedding.embedder import Embedded, UnusableInputError
from service.embedding.prompts import resolve
from service.errors import EmptyError, InvalidError, NotFoundError, NotLoadedError, TooLargeError
from service.server.edge import deadline
from service.server.edge.bodies import ROOM

if TYPE_CHECKING:
    from service.embedding.reranker import Reranker
    from service.index.documents import Index
    from service.index.query.filters import Filter, Where
    from service.index.query.reading import Query
    from service.server.bodies.fields import AreaIn, QueryIn
    from service.server.encoder import Encoder, Running
    from service.server.lifecycle import Service


class Areas(Protocol):
    """The feature of maps, as searches know it."""

    async def condition(self, index: Index, area: AreaIn, /) -> Where:
        """The condition that a document is inside an area of the map of its index."""


def service_of(request: Request) -> Service:
    """The process's service."""
    service: Service = request.app.state.service
    return service


async def open_index(request: Request, name: str) -> Index:
    """An index to read; see ``Indexes.open``. The answer names the revision of its vectors."""
    index = await (await service_of(request).store.indexes()).open(name, still=True)
    request.scope["docsplit.revision"] = index.identity.revision
    return index


def encoder_of(request: Request, model: str | None) -> Encoder:
    """The bundle that a request to a native route names, else the default one.

    A service with one bundle ignores the name, since clients of other services send theirs.

    Raises:
        NotFoundError: no bundle has that name.
    """
    encoders = service_of(request).encoders
    return encoders.default if len(encoders) == 1 else encoders.named(model)


def encoder_of_index(request: Request, index: Index) -> Encoder:
    """The bundle whose vectors an index holds."""
    encoders = service_of(request).encoders
    # ``Indexes`` opens only generations of served bundles
    return encoders.of(index.identity.revision) or encoders.default


def check_ready(service: Service) -> None:
    """Raise NotLoadedError if the service is not ready yet."""
    if not service.ready:
        raise NotLoadedError


async def running_of(service: Service, encoder: Encoder | None = None) -> Running:
    """The engine of a bundle and its embedders; the default bundle's without a name.

    Raises:
        NotLoadedError: the service is not ready yet.
        UnavailableError: the bundle cannot be loaded.
    """
    check_ready(service)
    return await service.encoders.running(encoder or service.encoders.default)


@contextmanager
def naming(place: Callable[[int], str]) -> Iterator[None]:
    """Let an error of a text name its place in the body.

    Args:
        place: of the text at a position among the embedded ones.
    """
    try:
        yield
    except UnusableInputError as error:
        error.message = f"{place(error.index)} {error.reason}"
        raise


def check_count(service: Service, inputs: int) -> None:
    """Raise 413 if a request has too many inputs."""
    most = service.settings.max_batch_items
    if inputs > most:
        raise TooLargeError(f"{inputs} inputs, the limit is {most}: send several requests", "input")


async def embed(
    request: Request,
    texts: Sequence[str],
    *,
    prompt_name: str | None = None,
    truncate: bool = False,
    side: Side = "right",
    fresh: bool = False,
    encoder: Encoder | None = None,
) -> Embedded:
    """Embed the texts of one request and count them; ``fresh`` uses no cached window.

    The default bundle embeds them, unless ``encoder`` is another one.

    Raises:
        TooLargeError, EmptyError, NotLoadedError: too many inputs, no input, not ready.
    """
    service = service_of(request)
    if not texts:
        raise EmptyError("no input: the list is empty", "input", code="empty_input")
    check_count(service, len(texts))
    encoder = encoder or service.encoders.default
    prompt = resolve(encoder.manifest, prompt_name)
    running = await running_of(service, encoder)
    result = await running.embedder.embed(
        texts,
        deadline.of(request),
        prompt=prompt,
        truncate=truncate,
        side=side,
        vectors=running.fresh if fresh else None,
    )
    service.metrics.embedded(result, encoder.name)
    _note(request, result)
    return result


async def score(
    request: Request,
    reranker: Reranker,
    query: str,
    texts: Sequence[str],
    *,
    truncate: bool = False,
    side: Side = "right",
) -> Embedded:
    """Score the texts of one request for its query, and count them.

    Raises:
        TooLargeError, EmptyError: too many inputs, no input.
    """
    service = service_of(request)
    check_count(service, 1 + len(texts))
    expiry = deadline.of(request)
    result = await reranker.score(query, texts, expiry, truncate=truncate, side=side)
    service.metrics.reranked(result)
    _note(request, result)
    return result


async def reserve(request: Request, index: Index, document_id: str) -> None:
    """Reserve memory for the text of a stored document, before it is read.

    Raises:
        OverloadedError: there is none for this client now.
    """
    from service.index import documents

    characters = await documents.characters_of(index.table, document_id)
    request.scope[ROOM].reach(memory.needed(characters))


def reserving(request: Request) -> Callable[[int], None]:
    """Reserves memory for further characters of stored texts, which the request is to read.

    The call raises OverloadedError if there is none for this client now.
    """
    return _reserving(request, memory.needed)


def reserving_heads(request: Request) -> Callable[[int], None]:
    """Reserves memory for further characters of titles and metadata that the answer holds.

    The call raises OverloadedError if there is none for this client now.
    """
    held = request.scope[ROOM].bytes
    return _reserving(request, lambda characters: held + memory.STORED_FACTOR * characters)


def _reserving(request: Request, needed: Callable[[int], int]) -> Callable[[int], None]:
    total = 0

    def reserve(characters: int) -> None:
        nonlocal total
        total += characters
        request.scope[ROOM].share(needed(total))

    return reserve


async def query(request: Request, index: Index, body: QueryIn) -> tuple[Query, dict[str, str]]:
    """The query of a request, and headers of the answer.

    Raises:
        NotFoundError: the index has no such document.
        DamagedError: the stored document does not match its checksums.
    """
    from service.index.query.reading import Query
    from service.index.query.search import stored

    if body.id is not None:
        await reserve(request, index, body.id)
        return await stored(index, body.id), {}
    text = body.text or ""
    with naming(lambda _: "text"):
        result = await embed(request, [text], encoder=encoder_of_index(request, index))
    return Query(normalise(result.documents[0].vector()), text), headers(request, result)


async def condition(
    request: Request, index: Index, given: Filter | None, area: AreaIn | None
) -> Where | None:
    """The condition on documents that the filter and the area of a search make.

    Raises:
        InvalidError: the filter does not fit the index, or the area has too many documents.
        ConflictError: the area is on another map.
        MissingError: the service has no maps.
    """
    from service.index.query.filters import both, compile_filter

    where = None if given is None else compile_filter(given, index.identity.fields)
    if area is None:
        return where
    if "maps" not in (features := service_of(request).features):
        from service.features import MissingError

        raise MissingError("maps")
    maps: Areas = features["maps"]  # type: ignore[assignment]
    return both(where, await maps.condition(index, area))


def vectors(
    result: Embedded, *, unit: bool = True, dimensions: int | None = None
) -> NDArray[np.float32]:
    """Document vectors ``[documents, dimensions]``.

    Shortened vectors always have unit length, whatever ``unit`` says.
    """
    matrix = np.stack([document.vector() for document in result.documents])
    if dimensions is not None:
        return shorten(matrix, dimensions)
    return normalise(matrix) if unit else matrix


def check_dimensions(encoder: Encoder, dimensions: int | None) -> None:
    """Raise 422 if the model has fewer dimensions."""
    most = encoder.manifest.dimensions
    if dimensions is not None and dimensions > most:
        raise InvalidError(f"dimensions: this model has {most}", "dimensions")


def ranking_encoder(service: Service, name: str) -> Encoder:
    """The bundle that a request for a ranking names; the default one if a re-ranker ranks.

    Raises:
        NotFoundError: the request names another model than those that rank.
    """
    if service.reranking is None:
        return service.encoders.named(name)
    known = [service.reranking.bundle.manifest.name, *service.settings.model_aliases]
    if name not in known:
        raise NotFoundError(
            f"no such model here; texts are ranked by: {', '.join(known)}. The setting "
            "model_aliases adds further names",
            param="model",
            code="model_not_found",
        )
    return service.encoders.default


def headers(request: Request, result: Embedded) -> dict[str, str]:
    """Headers of an inference answer; times are in milliseconds."""
    windows, cached = len(result.windows), result.cached
    elapsed = time.monotonic() - request.scope["docsplit.started"]
    return {
        "x-compute-tokens": str(result.computed),
        "x-compute-characters": str(sum(d.characters for d in result.documents)),
        "x-total-time": _ms(elapsed),
        "x-tokenization-time": _ms(result.timing.tokenising),
        "x-queue-time": _ms(result.timing.queued),
        "x-inference-time": _ms(result.timing.computing),
        "x-cache": "hit" if cached == windows else "partial" if cached else "miss",
        "x-unknown-tokens": str(sum(d.unknown for d in result.documents)),
        "x-truncated": "true" if result.truncated else "false",
    }


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f}"


def _note(request: Request, result: Embedded) -> None:
    """Leave the sizes of a request for its log line."""
    request.scope["docsplit.usage"] = {
        "documents": len(result.documents),
        "windows": len(result.windows),
        "cached": result.cached,
        "tokens": result.computed,
    }
