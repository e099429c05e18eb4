"""Answers lines with lines, in their order, while more lines arrive."""

from __future__ import annotations

import asyncio
import enum
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import orjson
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from service.embedding import lookup
from service.embedding.embedder import Document, Embedded
from service.errors import OverloadedError, ServiceError
from service.server.bodies.encoding import encode
from service.server.edge.bodies import NDJSON
from service.server.edge.errors import translate
from service.server.edge.rights import next_request
from service.server.lines.embedding import Lines, Outcome
from service.server.lines.reading import Line
from service.server.routes import inference

# Limits of the batches that are computed, or wait for their turn to be sent.
MOST_BATCHES = 8
MOST_CHARACTERS = 262_144
# Bytes of answers that wait for the end of the body, for clients and proxies that read only then.
HELD_BYTES = 4 << 20
# seconds between two checks of the key
_CHECK_SECONDS = 10.0
_FORM = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE


@dataclass(slots=True)
class _Batch:
    """A batch in work: its lines, and their outcomes to come."""

    lines: list[Line]
    characters: int
    outcomes: asyncio.Task[list[Outcome]]


class _Mark(enum.Enum):
    """What the reader says besides batches."""

    PAUSE = enum.auto()
    END = enum.auto()


class LineAnswers(Response):
    """Reads lines, embeds them and sends their results.

    The answer begins when all lines were read, or the client pauses, or the results that wait take
    ``HELD_BYTES``. From then on the service reads no faster than the client does.

    Args:
        lines: embeds texts.
        batches: lines to embed; an empty batch is a pause.
        progress: called when lines were accepted or answered.
        most_held: bytes of results that wait for the end of the lines.
    """

    def __init__(
        self,
        lines: Lines,
        batches: AsyncIterator[list[Line]],
        progress: Callable[[], None] = lambda: None,
        most_held: int = HELD_BYTES,
    ) -> None:
        super().__init__(media_type=NDJSON)
        # unknown before the last line
        del self.headers["content-length"]
        self._lines = lines
        self._batches = batches
        self._progress = progress
        self._most_held = most_held
        self._order: asyncio.Queue[_Batch | _Mark | Exception] = asyncio.Queue()
        self._in_work: set[asyncio.Task[list[Outcome]]] = set()
        self._batches_in_work = 0
        self._characters = 0
        self._freed = asyncio.Event()
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._begun = False
        self._results = 0
        self._errors = 0

    async def __call__(self, scope: Scope, _: Receive, send: Send) -> None:
        metrics = self._lines.service.metrics
        reader = asyncio.create_task(self._read(scope))
        with metrics.line_streams.track_inprogress():
            try:
                await self._write(scope, send)
            finally:
                tasks = {reader, *self._in_work}
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(self, scope: Scope) -> None:
        """Begin the work on every batch, in the bounds of what may wait."""
        since, accepted = time.monotonic(), 0
        most = self._lines.service.settings.max_batch_items
        try:
            async for lines in self._batches:
                if not lines:
                    self._order.put_nowait(_Mark.PAUSE)
                    continue
                accepted += len(lines)
                again = accepted > most or time.monotonic() - since > _CHECK_SECONDS
                await self._allowed(scope, again)
                if again:
                    since, accepted = time.monotonic(), len(lines)
                await self._begin(lines)
                self._progress()
            self._order.put_nowait(_Mark.END)
        except Exception as error:  # noqa: BLE001 the last line tells it
            self._order.put_nowait(error)

    async def _allowed(self, scope: Scope, again: bool) -> None:
        """Wait for the rates of the key; ``again``: these lines count as another request."""
        try:
            async with asyncio.timeout(self._lines.seconds):
                await lookup.out_of_debt()
                if again:
                    await next_request(scope)
        except TimeoutError:
            raise OverloadedError(
                self._lines.seconds,
                "this API key exceeds its rate; send the lines that have no answer",
                "rate_limit_exceeded",
            ) from None

    async def _begin(self, lines: list[Line]) -> None:
        characters = sum(line.characters for line in lines)
        while self._batches_in_work and (
            self._batches_in_work == MOST_BATCHES or self._characters + characters > MOST_CHARACTERS
        ):
            self._freed.clear()
            await self._freed.wait()
        texts = [line.text for line in lines if isinstance(line.text, str)]
        task = asyncio.create_task(self._lines.embed(texts))
        self._in_work.add(task)
        task.add_done_callback(self._in_work.discard)
        self._batches_in_work += 1
        self._characters += characters
        self._order.put_nowait(_Batch(lines, characters, task))

    async def _write(self, scope: Scope, send: Send) -> None:
        while True:
            match await self._order.get():
                case _Mark.PAUSE:
                    await self._flush(send)
                case _Batch() as batch:
                    self._hold(self._answer(batch.lines, await batch.outcomes))
                    scope["docsplit.usage"] = dict(self._lines.usage)
                    if self._begun or self._held_bytes >= self._most_held:
                        await self._flush(send)
                    self._batches_in_work -= 1
                    self._characters -= batch.characters
                    self._freed.set()
                case end:
                    await self._end(end if isinstance(end, Exception) else None, send)
                    return

    def _hold(self, answer: bytes) -> None:
        self._held.append(answer)
        self._held_bytes += len(answer)

    async def _flush(self, send: Send) -> None:
        if not self._held:
            return
        await self._start(send)
        body, self._held, self._held_bytes = b"".join(self._held), [], 0
        await send({"type": "http.response.body", "body": body, "more_body": True})
        self._progress()

    async def _start(self, send: Send) -> None:
        if not self._begun:
            self._begun = True
            message: Message = {
                "type": "http.response.start",
                "status": 200,
                "headers": self.raw_headers,
            }
            await send(message)

    async def _end(self, error: Exception | None, send: Send) -> None:
        """The last line; an error before any result gets a status of its own."""
        if error is not None and not self._begun and not self._results:
            raise error
        last: dict[str, Any] = {
            "lines": self._results,
            "errors": self._errors,
            "tokens": self._lines.usage["tokens"],
        }
        if error is not None:
            last |= _error(translate(error))
        self._hold(orjson.dumps(last, option=_FORM))
        await self._start(send)
        await send({"type": "http.response.body", "body": b"".join(self._held)})

    def _answer(self, lines: list[Line], outcomes: list[Outcome]) -> bytes:
        rest, rows = iter(outcomes), self._rows(outcomes)
        entries: list[dict[str, Any]] = []
        errors = 0
        for line in lines:
            outcome = line.text if isinstance(line.text, ServiceError) else next(rest)
            entry: dict[str, Any] = {"index": line.index}
            if isinstance(outcome, ServiceError):
                entry |= _error(outcome)
                errors += 1
            else:
                entry["embedding"] = next(rows)
                if outcome.truncated:
                    entry["truncated"] = True
            entries.append(entry)
        self._results += len(entries)
        self._errors += errors
        metric = self._lines.service.metrics.lines
        metric.labels("embedded").inc(len(entries) - errors)
        metric.labels("refused").inc(errors)
        return b"".join(orjson.dumps(entry, option=_FORM) for entry in entries)

    def _rows(self, outcomes: list[Outcome]) -> Iterator[Any]:
        """The vectors of a batch, in the form that the request asks for."""
        options = self._lines.options
        found = [one for one in outcomes if isinstance(one, Document)]
        if not found:
            return iter(())
        matrix = inference.vectors(
            Embedded(found), unit=options.normalize, dimensions=options.dimensions
        )
        return iter(encode(matrix, options.encoding_format))


def _error(error: ServiceError) -> dict[str, Any]:
    return {
        "status": error.status,
        "error": error.message,
        "error_type": error.kind,
        "code": error.code,
    }
