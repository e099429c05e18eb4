"""The engine's process's end of the connection to one front."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from functools import partial
from typing import Any

import orjson
import structlog
from pydantic import SecretStr

from service.embedding.batching.batcher import DeadlineError, EngineFailedError, OverloadedError
from service.embedding.batching.clients import Client, working_for
from service.embedding.cache import lasting
from service.logs import outline
from service.server.lifecycle import Service
from service.workers import wire

log = structlog.get_logger("docsplit")


class FrontChannel:
    """Answers one front from the service's engine and cache.

    Args:
        service: holds the engine.
        lane: a Unix socket, not blocking, over which the front gets accepted connections.
        scrape: the whole service's metrics as text.

    Attributes:
        open: connections that it has, as far as is known.
        handed_at: when it got the last one, on ``time.monotonic``'s clock.
        seen: when it last gave a sign of life, on the same clock.
        came_up: whether it ever did.
        snapshot: its metrics as of the last scrape.
    """

    def __init__(
        self, service: Service, lane: socket.socket, scrape: Callable[[], Awaitable[bytes]]
    ) -> None:
        self._service = service
        self._lane = lane
        self._scrape = scrape
        self._writer: asyncio.StreamWriter | None = None
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._fresh = asyncio.Event()
        self._handed = 0
        self._closed = 0
        self.handed_at = 0.0
        self.seen = time.monotonic()
        self.came_up = False
        self.snapshot: list[Any] = []

    @property
    def open(self) -> int:
        """See the class."""
        return self._handed - self._closed

    def hand(self, connection: socket.socket) -> bool:
        """Give the front an accepted connection; False where it takes no more."""
        try:
            socket.send_fds(self._lane, [b"+"], [connection.fileno()])
        except OSError:
            return False
        self._handed += 1
        self.handed_at = time.monotonic()
        return True

    async def serve(self, connection: socket.socket, worker: int) -> None:
        """Answer until the front has gone; its open work is dropped then.

        Args:
            worker: the front's number.
        """
        reader, self._writer = await asyncio.open_unix_connection(sock=connection)
        wire.send(self._writer, self._start(worker))
        try:
            while (frame := await wire.receive(reader)) is not None:
                self._take(frame)
        finally:
            for task in self._tasks.values():
                task.cancel()
            self._writer.close()
            self._lane.close()
            self._fresh.set()

    def tell(self, *, closing: bool) -> None:
        """Send the service's state."""
        service = self._service
        running = service.running
        status = {
            "kind": "status",
            "phase": service.phase,
            "degraded": service.degraded,
            "closing": closing,
            "queued_tokens": 0 if running is None else running.vectors.queued_tokens,
            "engine": None if running is None else asdict(running.engine),
            "calibration": service.calibrated,
        }
        self._send(status)

    async def count(self) -> None:
        """Bring ``snapshot`` up to date; returns when the front has answered, or is gone."""
        self._fresh.clear()
        if self._writer is not None and not self._writer.is_closing():
            self._send({"kind": "snapshot"})
            await self._fresh.wait()

    def _start(self, worker: int) -> dict[str, Any]:
        settings = orjson.loads(orjson.dumps(self._service.settings.model_dump(), default=_plain))
        revision = self._service.bundle.manifest.revision
        return {"kind": "start", "worker": worker, "revision": revision, "settings": settings}

    def _send(self, fields: dict[str, Any], *body: bytes) -> None:
        if self._writer is not None:
            wire.send(self._writer, fields, *body)

    def _take(self, frame: wire.Frame) -> None:
        fields = frame.fields
        match fields["kind"]:
            case "get":
                self._run(fields["id"], partial(self._get, frame))
            case "scrape":
                self._run(fields["id"], partial(self._metrics, fields["id"]))
            case "cancel":
                task = self._tasks.get(fields["id"])
                if task is not None:
                    task.cancel()
            case "counted":
                self.snapshot = fields["metrics"]
                self._fresh.set()
            case "alive":
                self.seen, self.came_up = time.monotonic(), True
                self._closed = fields["closed"]

    def _run(self, number: int, answer: Callable[[], Awaitable[None]]) -> None:
        task = asyncio.create_task(self._answer(number, answer))
        self._tasks[number] = task
        task.add_done_callback(lambda _: self._tasks.pop(number, None))

    async def _answer(self, number: int, answer: Callable[[], Awaitable[None]]) -> None:
        failed = {"kind": "error", "id": number, "message": "", "retry_after": 0.0}
        try:
            await answer()
        except OverloadedError as error:
            self._send(failed | {"error": "overloaded", "retry_after": error.retry_after})
        except DeadlineError:
            self._send(failed | {"error": "deadline"})
        except EngineFailedError as error:
            # the front logs it with its request, but has no cause to tell
            log.error("engine_call_failed", exc_info=error)
            self._send(failed | {"error": "engine", "message": str(error)})
        except ConnectionError:
            pass
        except Exception as error:  # noqa: BLE001 it is logged
            log.error("unexpected", outline=outline(error))
            self._send(failed | {"error": "internal", "message": type(error).__name__})

    async def _get(self, frame: wire.Frame) -> None:
        running = self._service.running
        if running is None:
            raise EngineFailedError("there is no engine")
        fields = frame.fields
        keys, windows = wire.unpack_windows(fields["count"], frame.body)
        vectors = running.vectors if fields["cached"] else running.fresh
        client = Client(fields["client"], fields["weight"])
        with working_for(client), lasting.work(fields["lasting"]):
            found = await vectors.get(keys, windows, fields["deadline"])
        told = {
            "kind": "vectors",
            "id": fields["id"],
            "sources": found.sources,
            "looking": found.looking,
            "queued": found.queued,
            "computing": found.computing,
        }
        self._send(told, wire.pack_vectors(found.vectors))
        await self._drain()

    async def _metrics(self, number: int) -> None:
        self._send({"kind": "metrics", "id": number}, await self._scrape())
        await self._drain()

    async def _drain(self) -> None:
        if self._writer is not None:
            await self._writer.drain()


def _plain(value: Any) -> str:
    return value.get_secret_value() if isinstance(value, SecretStr) else str(value)
