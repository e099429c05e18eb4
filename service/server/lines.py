"""NDJSON on ``/embed``: one JSON text a line in, one JSON result a line out, while more arrive.

``BodyLines`` cuts the body into lines and batches, ``Lines`` embeds a batch, ``LineAnswers`` sends
the results in their order. An error of a line is its result. At most ``MOST_BATCHES`` batches are
in work or wait for the client to read, so memory is bounded, and all work ends with the client.
"""

from __future__ import annotations

import asyncio
import time
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, Self

import orjson
from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field, ValidationError
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from service import executors, memory, precedence
from service.embedding import charges
from service.embedding.embedder import Document, Embedded
from service.embedding.prompts import resolve
from service.errors import (
    EmptyError,
    EngineFailedError,
    InvalidError,
    MalformedError,
    OverloadedError,
    ServiceError,
    SlowBodyError,
    TooLargeError,
    UnavailableError,
)
from service.server.bodies.encoding import EncodingFormat, encode
from service.server.bodies.fields import CutSide, ModelName, valid_text
from service.server.bodies.large import marks, parse, values
from service.server.edge import deadline
from service.server.edge.bodies import BODY_RATE, LINES_MEMORY, NDJSON, ROOM, Body
from service.server.edge.errors import translate
from service.server.edge.rights import next_request
from service.server.routes import inference
from service.unknown import field_names, unknown_name

if TYPE_CHECKING:
    from service.server.encoder import Encoder
    from service.server.lifecycle import Service

# A batch ends at one of these. It is embedded like one request.
BATCH_LINES = 64
BATCH_CHARACTERS = 65_536
# Limits of the batches that are computed, or wait for their turn to be sent.
MOST_BATCHES = 8
MOST_CHARACTERS = 262_144
# Seconds without a byte after which the answers begin, because the client may wait for them.
PAUSE = 0.5
# Bytes of answers that wait for the end of the body, for clients and proxies that read only then.
HELD_BYTES = 4 << 20
# seconds between two checks of the key
_CHECK_SECONDS = 10.0
# JSON values of the object in a line
_MOST_VALUES = 64
_FORM = 'send a JSON string, or an object {"inputs": "…"}, in UTF-8'
_WRITTEN = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE


class LineOptions(BaseModel):
    """How all lines are embedded, and how vectors are written."""

    normalize: bool = True
    truncate: bool = False
    truncation_direction: CutSide = "right"
    dimensions: int | None = Field(None, ge=1)
    encoding_format: EncodingFormat = "float"
    prompt_name: str | None = None
    model: ModelName = None

    @classmethod
    def of_query(cls, request: Request) -> Self:
        """The options in the query of a path.

        Raises:
            RequestValidationError: one has a wrong type or value.
            InvalidError: one occurs twice, or is not known.
        """
        given = request.query_params
        if "windows" in given:
            raise InvalidError("query.windows: answers by lines have none; send JSON", "windows")
        if message := unknown_name(given, field_names(cls)):
            raise InvalidError(f"the query parameter {message}")
        if twice := [name for name in cls.model_fields if len(given.getlist(name)) > 1]:
            raise InvalidError(f"query.{twice[0]}: give it once", twice[0])
        try:
            return cls.model_validate(dict(given))
        except ValidationError as error:
            raise RequestValidationError(
                [{**one, "loc": ("query", *one["loc"])} for one in error.errors()]
            ) from None


class LineResult(BaseModel):
    """The vector of a line."""

    index: int = Field(description="position of the line among those that are not blank, from 0")
    embedding: list[float] | str
    truncated: bool = False


class LineError(BaseModel):
    """The error of a line."""

    index: int
    status: int = Field(description="that a request with only this line would get")
    error: str
    error_type: str
    code: str | None


class LinesEnd(BaseModel):
    """The last line of an answer; with an error if the service did not read all lines."""

    lines: int
    errors: int
    tokens: int = Field(description="that the model read")
    status: int | None = None
    error: str | None = None
    error_type: str | None = None
    code: str | None = None


NAMES = frozenset(LineOptions.model_fields)
RESULTS = [model.model_json_schema() for model in (LineResult, LineError, LinesEnd)]
_TEXT: dict[str, Any] = {"type": "string", "minLength": 1}
_OBJECT = {"type": "object", "properties": {"inputs": _TEXT}, "required": ["inputs"]}
DOCUMENTED: dict[str, Any] = {
    "requestBody": {
        "content": {NDJSON: {"schema": {"description": "one line", "anyOf": [_TEXT, _OBJECT]}}}
    },
    "parameters": [
        {
            "name": name,
            "in": "query",
            "required": False,
            "description": f"only with {NDJSON}: for all lines, as the field of that name",
            "schema": schema,
        }
        for name, schema in LineOptions.model_json_schema()["properties"].items()
    ],
}


@dataclass(frozen=True, slots=True)
class Line:
    """A text, or the error in its place.

    Attributes:
        index: position among all lines that are not blank.
    """

    index: int
    text: str | ServiceError

    @property
    def characters(self) -> int:
        """Length of the text."""
        return len(self.text) if isinstance(self.text, str) else 0


def lines_of_body(request: Request, options: LineOptions) -> LineAnswers:
    """Embed the lines of a body while they arrive.

    Raises:
        NotLoadedError: not ready.
        NotFoundError: no bundle has that name.
        InvalidError: the model has no such prompt, or fewer dimensions.
    """
    lines = Lines.of(request, options)
    settings = lines.service.settings
    body = BodyLines(
        request.receive,
        text_of,
        request.scope[ROOM],
        settings.max_body_bytes,
        settings.body_timeout,
        lambda: lines.service.ending,
    )
    return LineAnswers(lines, body.batches(), body.progress)


def lines_of_texts(request: Request, texts: Sequence[str], options: LineOptions) -> LineAnswers:
    """Embed the texts of a JSON body, and answer each when its vector is ready.

    Raises:
        NotLoadedError, EmptyError, TooLargeError: as without lines.
    """
    lines = Lines.of(request, options)
    if not texts:
        raise EmptyError("no input: the list is empty", "input", code="empty_input")
    inference.check_count(lines.service, len(texts))

    async def found() -> AsyncIterator[Line]:
        for index, text in enumerate(texts):
            yield Line(index, text)

    return LineAnswers(lines, batched(found()), most_held=0)


class Splitter:
    """Cuts a body that arrives in pieces into lines, without blank ones and a byte order mark.

    Args:
        check: receives the size of the line that arrives; the error that it raises takes the
            line's place, and the rest of the line is skipped.
    """

    def __init__(self, check: Callable[[int], None]) -> None:
        self._check = check
        self._rest = bytearray()
        self._skipped = 0
        self._is_first = True

    @property
    def incomplete(self) -> int:
        """Bytes of the line that has not ended yet."""
        return self._skipped or len(self._rest)

    def feed(self, piece: bytes) -> Iterator[bytes | ServiceError]:
        """The lines that end in this piece, and errors in their places."""
        for number, part in enumerate(piece.split(b"\n")):
            if number:
                yield from self.end()
            yield from self._add(part)

    def end(self) -> Iterator[bytes]:
        """The line that has ended; call it at the end of the body."""
        line, self._rest, self._skipped = self._rest.strip(b" \t\r"), bytearray(), 0
        if self._is_first:
            # as Windows' programs write it, and docsplit-index reads it
            line, self._is_first = line.removeprefix(BOM_UTF8), False
        if line:
            yield bytes(line)

    def _add(self, part: bytes) -> Iterator[ServiceError]:
        if self._skipped or not part:
            self._skipped += len(part) if self._skipped else 0
            return
        try:
            self._check(len(self._rest) + len(part))
        except ServiceError as error:
            self._skipped, self._rest = len(self._rest) + len(part), bytearray()
            yield error
        else:
            self._rest += part


async def batched(lines: AsyncIterator[Line]) -> AsyncIterator[list[Line]]:
    """Lines in lists, none of which is empty."""
    batch: list[Line] = []
    characters = 0
    async for line in lines:
        batch.append(line)
        characters += line.characters
        if len(batch) == BATCH_LINES or characters >= BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


async def text_of(line: bytes) -> str:
    """The text of a line of JSON that is not blank.

    Raises:
        MalformedError: the line is not JSON.
        InvalidError, TooLargeError: it is not one text.
    """
    if line[:1] not in (b'"', b"{"):
        raise InvalidError(f"the line holds no text: {_FORM}", "inputs")
    if line[:1] == b"{" and marks(line) > _MOST_VALUES and max(values(line)) > _MOST_VALUES:
        raise TooLargeError(f"the line holds more than {_MOST_VALUES} JSON values: {_FORM}")
    try:
        large = len(line) > precedence.LARGE
        value = await executors.BODIES.run(parse, line) if large else orjson.loads(line)
    except (ValueError, RecursionError):
        raise MalformedError(f"the line is not valid JSON: {_FORM}") from None
    if isinstance(value, dict):
        for name in sorted(NAMES & value.keys()):
            raise InvalidError(
                f"{name}: options hold for all lines, so give them in the query of the path, such "
                "as /embed?encoding_format=base64",
                name,
            )
        if "inputs" not in value:
            raise InvalidError(f"inputs: the line has no such field: {_FORM}", "inputs")
        value = value["inputs"]
    try:
        return valid_text(value)
    except ValueError as error:
        raise InvalidError(f"inputs: {error}", "inputs") from None


class BodyLines:
    """The lines of a body.

    Args:
        receive: of ASGI; on a disconnect it never returns.
        room: memory of the request.
        seconds: in which the next line must arrive; every ``BODY_RATE`` bytes of it add one.
        stopping: whether the service is about to end.
    """

    def __init__(
        self,
        receive: Receive,
        read: Callable[[bytes], Coroutine[Any, Any, str]],
        room: Body,
        most_bytes: int,
        seconds: float,
        stopping: Callable[[], bool],
    ) -> None:
        self._receive, self._read, self._room = receive, read, room
        self._most, self._seconds, self._stopping = most_bytes, seconds, stopping
        self._splitter = Splitter(self._check)
        self._since = time.monotonic()
        self._next = 0

    def progress(self) -> None:
        """The client got an answer, or its lines were accepted: its time begins again."""
        self._since = time.monotonic()

    async def batches(self) -> AsyncIterator[list[Line]]:
        """Lines in batches, none later than its last line; an empty one while nothing arrives.

        Raises:
            SlowBodyError: no line arrived in time.
            UnavailableError: the service ends.
        """
        more = True
        while more:
            getter = asyncio.ensure_future(self._receive())
            try:
                while not (await asyncio.wait((getter,), timeout=PAUSE))[0]:
                    self._check_progress()
                    yield []
                message = getter.result()
            finally:
                getter.cancel()
            more = message.get("more_body", False)
            async for batch in batched(self._lines(message.get("body", b""), more)):
                yield batch
                self.progress()
            if more:
                self._check_progress()

    async def _lines(self, piece: bytes, more: bool) -> AsyncIterator[Line]:
        for found in chain(self._splitter.feed(piece), () if more else self._splitter.end()):
            text: str | ServiceError
            try:
                text = found if isinstance(found, ServiceError) else await self._read(found)
            except ServiceError as error:
                text = error
            yield Line(self._next, text)
            self._next += 1

    def _check(self, size: int) -> None:
        """Raise if a line of this size has no room."""
        if size > self._most:
            raise TooLargeError(
                f"the line has more than {self._most} bytes, which is the limit: split its text",
                code="line_too_large",
            )
        self._room.reach(LINES_MEMORY + memory.needed(size))

    def _check_progress(self) -> None:
        if self._stopping():
            raise UnavailableError(
                "the service is stopping: send the lines that have no answer again"
            )
        allowed = self._seconds + self._splitter.incomplete / BODY_RATE
        if time.monotonic() > self._since + allowed:
            raise SlowBodyError("the next line did not arrive in time")


Outcome = Document | ServiceError


@dataclass(slots=True)
class Lines:
    """Embeds texts of one request.

    Attributes:
        encoder: the bundle that embeds the texts.
        seconds: that each batch may take, the waiting for room in the queue included.
        usage: documents, windows, cached windows and tokens so far.
    """

    service: Service
    encoder: Encoder
    options: LineOptions
    seconds: float
    usage: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, request: Request, options: LineOptions) -> Self:
        """Check a request before anything is read; see ``lines_of_body``."""
        service = inference.service_of(request)
        inference.check_ready(service)
        encoder = inference.encoder_of(request, options.model)
        inference.check_dimensions(encoder, options.dimensions)
        resolve(encoder.manifest, options.prompt_name)
        return cls(
            service, encoder, options, deadline.of(request) - request.scope["docsplit.started"]
        )

    async def embed(self, texts: Sequence[str]) -> list[Outcome]:
        """The documents of texts, in their order; an error replaces a document without a vector."""
        return await self._each(texts, time.monotonic() + self.seconds) if texts else []

    async def _each(self, texts: Sequence[str], expiry: float) -> list[Outcome]:
        try:
            result = await self._patiently(texts, expiry)
        except EngineFailedError as error:
            if len(texts) == 1:
                return [translate(error)]
            # the cache has what the engine computed, so only the text at fault fails again
            return [one for text in texts for one in await self._each([text], expiry)]
        except Exception as error:  # noqa: BLE001 each line of the batch tells it
            return [translate(error)] * len(texts)
        self.service.metrics.embedded(result, self.encoder.name)
        for document in result.documents:
            self.usage["documents"] += 1
            self.usage["windows"] += len(document.windows)
            self.usage["cached"] += document.cached
            self.usage["tokens"] += document.computed
        for unusable in result.refused.values():
            # without the position in the batch
            unusable.message = f"the text {unusable.reason}"
        documents = iter(result.documents)
        return [result.refused.get(at) or next(documents) for at in range(len(texts))]

    async def _patiently(self, texts: Sequence[str], expiry: float) -> Embedded:
        """Embed texts; while the queue is full, wait for room until the deadline."""
        prompt = resolve(self.encoder.manifest, self.options.prompt_name)
        while True:
            try:
                async with asyncio.timeout(expiry - time.monotonic()):
                    running = await inference.running_of(self.service, self.encoder)
                    return await running.embedder.embed(
                        texts,
                        expiry,
                        prompt=prompt,
                        truncate=self.options.truncate,
                        side=self.options.truncation_direction,
                        refuse=True,
                    )
            except OverloadedError as error:
                if time.monotonic() + error.retry_after >= expiry:
                    raise
                await asyncio.sleep(error.retry_after)


@dataclass(slots=True)
class _Batch:
    """A batch in work: its lines, and their outcomes to come."""

    lines: list[Line]
    characters: int
    outcomes: asyncio.Task[list[Outcome]]


_PAUSED, _ENDED = object(), object()


class LineAnswers(Response):
    """Reads lines, embeds them and sends their results.

    The answer begins when all lines were read, or the client pauses, or the results that wait take
    ``HELD_BYTES``. From then on the service reads no faster than the client does.

    Args:
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
        self._lines, self._batches, self._progress = lines, batches, progress
        self._most_held = most_held
        # batches in work, marks, and the error that ends the reading
        self._order: asyncio.Queue[Any] = asyncio.Queue()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._waiting: list[_Batch] = []
        self._freed = asyncio.Event()
        self._held: list[bytes] = []
        self._begun = False
        self._results = self._errors = 0

    async def __call__(self, scope: Scope, _: Receive, send: Send) -> None:
        self._tasks.add(asyncio.create_task(self._read(scope)))
        with self._lines.service.metrics.line_streams.track_inprogress():
            try:
                await self._write(scope, send)
            finally:
                for task in self._tasks:
                    task.cancel()
                await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _read(self, scope: Scope) -> None:
        """Begin the work on every batch, in the bounds of what may wait."""
        since, accepted = time.monotonic(), 0
        most = self._lines.service.settings.max_batch_items
        try:
            async for lines in self._batches:
                if not lines:
                    self._order.put_nowait(_PAUSED)
                    continue
                accepted += len(lines)
                again = accepted > most or time.monotonic() - since > _CHECK_SECONDS
                await self._allowed(scope, again)
                if again:
                    since, accepted = time.monotonic(), len(lines)
                await self._begin(lines)
                self._progress()
            self._order.put_nowait(_ENDED)
        except Exception as error:  # noqa: BLE001 the last line tells it
            self._order.put_nowait(error)

    async def _allowed(self, scope: Scope, again: bool) -> None:
        """Wait for the rates of the key; ``again``: these lines count as another request."""
        try:
            async with asyncio.timeout(self._lines.seconds):
                await charges.out_of_debt()
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
        while self._waiting and (
            len(self._waiting) == MOST_BATCHES
            or sum(one.characters for one in self._waiting) + characters > MOST_CHARACTERS
        ):
            self._freed.clear()
            await self._freed.wait()
        texts = [line.text for line in lines if isinstance(line.text, str)]
        task = asyncio.create_task(self._lines.embed(texts))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._waiting.append(_Batch(lines, characters, task))
        self._order.put_nowait(self._waiting[-1])

    async def _write(self, scope: Scope, send: Send) -> None:
        while True:
            found = await self._order.get()
            if isinstance(found, _Batch):
                self._held.append(self._answer(found.lines, await found.outcomes))
                scope["docsplit.usage"] = dict(self._lines.usage)
                if self._begun or sum(map(len, self._held)) >= self._most_held:
                    await self._flush(send)
                self._waiting.remove(found)
                self._freed.set()
            elif found is _PAUSED:
                if self._held:
                    await self._flush(send)
            else:
                await self._end(None if found is _ENDED else found, send)
                return

    async def _flush(self, send: Send, more: bool = True) -> None:
        if not self._begun:
            self._begun = True
            start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
            await send(start)
        body, self._held = b"".join(self._held), []
        await send({"type": "http.response.body", "body": body, "more_body": more})
        self._progress()

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
            last |= _entry_of(translate(error))
        self._held.append(orjson.dumps(last, option=_WRITTEN))
        await self._flush(send, more=False)

    def _answer(self, lines: list[Line], outcomes: list[Outcome]) -> bytes:
        options = self._lines.options
        found = [one for one in outcomes if isinstance(one, Document)]
        rows: Iterator[Any] = iter(())
        if found:
            matrix = inference.vectors(
                Embedded(found), unit=options.normalize, dimensions=options.dimensions
            )
            rows = iter(encode(matrix, options.encoding_format))
        rest = iter(outcomes)
        entries: list[dict[str, Any]] = []
        for line in lines:
            outcome = line.text if isinstance(line.text, ServiceError) else next(rest)
            if isinstance(outcome, ServiceError):
                entries.append({"index": line.index, **_entry_of(outcome)})
            else:
                entries.append({"index": line.index, "embedding": next(rows)})
                if outcome.truncated:
                    entries[-1]["truncated"] = True
        errors = len(entries) - len(found)
        self._results += len(entries)
        self._errors += errors
        metric = self._lines.service.metrics.lines
        metric.labels("embedded").inc(len(found))
        metric.labels("refused").inc(errors)
        return b"".join(orjson.dumps(entry, option=_WRITTEN) for entry in entries)


def _entry_of(error: ServiceError) -> dict[str, Any]:
    return {
        "status": error.status,
        "error": error.message,
        "error_type": error.kind,
        "code": error.code,
    }
