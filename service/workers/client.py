"""A front's end of the connection to the engine's process."""

from __future__ import annotations

import asyncio
import itertools
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from service.embedding.batching import clients
from service.embedding.batching.batcher import DeadlineError, EngineFailedError, OverloadedError
from service.embedding.cache import lasting
from service.embedding.cache.layers import Source
from service.embedding.engines.interface import EngineFacts
from service.embedding.lookup import Found
from service.server.edge.errors import ApiError
from service.server.lifecycle import Phase
from service.tracing import stages
from service.tracing.stages import Stage
from service.workers import wire
from windowing.windows import Ids


@dataclass(frozen=True, slots=True)
class Status:
    """What the engine's process last told of itself."""

    phase: Phase
    degraded: bool
    closing: bool
    queued_tokens: int
    engine: EngineFacts | None
    calibration: dict[str, Any] | None


class EngineGoneError(ApiError):
    """The engine's process ended; 503, so that a balancer asks another replica."""

    def __init__(self) -> None:
        super().__init__(503, "the service is ending; ask again soon", headers={"retry-after": "1"})


class EngineClient:
    """Asks the engine's process, many questions at once over one connection.

    Args:
        told: called with every status, and with None when the process is gone.
        counted: this process's metrics, fit for JSON.
        closed: connections of clients that were here and are closed.
    """

    def __init__(
        self,
        told: Callable[[Status | None], None],
        counted: Callable[[], list[Any]],
        closed: Callable[[], int],
    ) -> None:
        self._told = told
        self._counted = counted
        self._closed = closed
        self._numbers = itertools.count()
        self._waiting: dict[int, asyncio.Future[wire.Frame]] = {}
        self._writer: asyncio.StreamWriter | None = None
        self._listening: asyncio.Task[None] | None = None

    async def open(self, connection: socket.socket) -> None:
        """Listen to the engine's process from now on."""
        reader, self._writer = await asyncio.open_unix_connection(sock=connection)
        self._listening = asyncio.create_task(self._listen(reader))

    async def close(self) -> None:
        """Hang up."""
        if self._writer is not None:
            self._writer.close()
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)

    async def get(
        self, keys: Sequence[bytes], windows: Sequence[Ids], deadline: float, *, cached: bool
    ) -> Found:
        """As ``WindowVectors.get``."""
        client = clients.current()
        fields = {
            "kind": "get",
            "deadline": deadline,
            "cached": cached,
            "lasting": lasting.current(),
            "count": len(windows),
            "client": client.name,
            "weight": client.weight,
        }
        with Stage("engine", client=True) as stage:
            answer = await self._ask(fields, *wire.pack_windows(keys, windows))
            told = answer.fields
            stage.note({f"docsplit.cache.{s}": told["sources"].count(s) for s in Source})
            _trace(told["queued"], told["computing"])
        vectors = wire.unpack_vectors(len(windows), answer.body)
        sources = [Source(source) for source in told["sources"]]
        return Found(vectors, sources, told["looking"], told["queued"], told["computing"])

    async def scrape(self) -> bytes:
        """Metrics of the whole service, as text."""
        return (await self._ask({"kind": "scrape"})).body

    async def _ask(self, fields: dict[str, Any], *body: bytes) -> wire.Frame:
        writer = self._writer
        if writer is None or writer.is_closing():
            raise EngineGoneError
        number = next(self._numbers)
        answer = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            wire.send(writer, {**fields, "id": number}, *body)
            await writer.drain()
            frame: wire.Frame = await answer
        except ConnectionError as error:
            raise EngineGoneError from error
        finally:
            # unless it was answered
            if self._waiting.pop(number, None) is not None:
                wire.send(writer, {"kind": "cancel", "id": number})
        if frame.fields["kind"] == "error":
            raise _error(frame.fields)
        return frame

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        try:
            while (frame := await wire.receive(reader)) is not None:
                self._take(frame)
        finally:
            if self._writer is not None:
                self._writer.close()
            for answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(EngineGoneError())
            self._waiting.clear()
            self._told(None)

    def _take(self, frame: wire.Frame) -> None:
        fields = frame.fields
        match fields["kind"]:
            case "status":
                self._told(_status(fields))
                self._say({"kind": "alive", "closed": self._closed()})
            case "snapshot":
                self._say({"kind": "counted", "metrics": self._counted()})
            case _:
                answer = self._waiting.pop(fields["id"], None)
                if answer is not None and not answer.done():
                    answer.set_result(frame)

    def _say(self, fields: dict[str, Any]) -> None:
        if self._writer is not None:
            wire.send(self._writer, fields)


class RemoteVectors:
    """Window vectors from the engine's process; a ``WindowVectors``.

    Args:
        client: the connection.
        status: the last status.
        cached: whether they are taken from the cache and kept there.
    """

    def __init__(self, client: EngineClient, status: Callable[[], Status], *, cached: bool) -> None:
        self._client = client
        self._status = status
        self._cached = cached

    @property
    def queued_tokens(self) -> int:
        """Tokens that waited for the engine a moment ago."""
        return self._status().queued_tokens

    async def get(self, keys: Sequence[bytes], windows: Sequence[Ids], deadline: float) -> Found:
        """See ``WindowVectors.get``."""
        return await self._client.get(keys, windows, deadline, cached=self._cached)


def _trace(queued: float, computing: float) -> None:
    """Spans of what the engine's process did; its clock is ours."""
    now = time.monotonic()
    if computing:
        stages.record("queue", now - computing - queued, now - computing, {})
        stages.record("infer", now - computing, now, {})


def _status(fields: dict[str, Any]) -> Status:
    engine = fields["engine"]
    return Status(
        Phase(fields["phase"]),
        fields["degraded"],
        fields["closing"],
        fields["queued_tokens"],
        None if engine is None else EngineFacts(**engine),
        fields["calibration"],
    )


def _error(fields: dict[str, Any]) -> Exception:
    match fields["error"]:
        case "overloaded":
            return OverloadedError(fields["retry_after"])
        case "deadline":
            return DeadlineError()
        case "engine":
            return EngineFailedError(fields["message"])
    return RuntimeError(f"in the engine's process: {fields['message']}")
