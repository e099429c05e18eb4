"""Vectors of any number of texts, while the texts are read: several requests at a time.

Texts go by lines, so an error of one text is no error of the others.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Unpack

import httpx2

from docsplit_client.call import Call, Steps, path
from docsplit_client.calls import batches, decoded
from docsplit_client.errors import ApiError, UnreachableError, of_fields
from docsplit_client.types import EmbedOptions, Vectors

TextOutcome = Vectors | ApiError
"""A vector ``[dimensions]``, or the error of its text."""

# requests at a time: the service computes one while the next arrives
PARALLEL = 3
# Texts of one request. The shipped balancers hold such a body and may send it again, and its
# answer fits into what the service keeps for clients that read only after they have sent all.
MOST_LINES = 256
MOST_CHARACTERS = 65_536
_NDJSON = "application/x-ndjson"
# a full queue or a service that stops: the same text may succeed later
_PASSING = (429, 503)
_ROUNDS = 4


@dataclass(frozen=True, slots=True)
class Answered:
    """What the service answered to some lines.

    Attributes:
        outcomes: of the first lines, in their order.
        error: why the service did not read the others; None if it read all.
    """

    outcomes: list[TextOutcome]
    error: ApiError | None


def lines(texts: Sequence[str], **options: Unpack[EmbedOptions]) -> Call[Answered]:
    """One request."""
    place = path("embed", encoding_format="base64", **options)
    body = "".join(json.dumps(text, ensure_ascii=False) + "\n" for text in texts)
    headers = {"content-type": _NDJSON, "accept": _NDJSON}
    # the service refuses half a surrogate pair, and only that text
    escaped = body.encode(errors="backslashreplace")
    return Call("POST", place, _read, headers=headers, raw_body=escaped)


def outcomes(texts: Sequence[str], **options: Unpack[EmbedOptions]) -> Steps[list[TextOutcome]]:
    """The vectors or errors of texts; sends those again that the service had no room for.

    Raises:
        ApiError: the service stopped to read the lines, more than once.
    """
    found: dict[int, TextOutcome] = {}
    waiting = list(range(len(texts)))
    for turn in range(_ROUNDS):
        if turn:
            yield 2.0**turn
        answered = yield lines([texts[at] for at in waiting], **options)
        error = answered.error
        if error is not None and error.status not in _PASSING:
            raise error
        found |= dict(zip(waiting, answered.outcomes, strict=False))
        waiting = [at for at in waiting if at not in found or _passes(found[at])]
        if not waiting:
            break
    if error is not None and len(found) < len(texts):
        raise error
    return [found[at] for at in range(len(texts))]


def in_threads(
    texts: Iterable[str], send: Callable[[list[str]], list[TextOutcome]], parallel: int
) -> Iterator[TextOutcome]:
    """The outcomes of texts, in their order; reads ``parallel`` requests ahead.

    Raises:
        ValueError: ``parallel`` is below 1.
    """
    _check(parallel)
    parts = batches(texts, len, MOST_LINES, MOST_CHARACTERS)
    running: deque[Future[list[TextOutcome]]] = deque()
    pool = ThreadPoolExecutor(parallel, "docsplit")
    try:
        while True:
            while len(running) < parallel and (part := next(parts, None)) is not None:
                running.append(pool.submit(send, part))
            if not running:
                return
            yield from running.popleft().result()
    finally:
        # what has begun ends with its request
        pool.shutdown(wait=False, cancel_futures=True)


async def in_tasks(
    texts: Iterable[str],
    send: Callable[[list[str]], Coroutine[None, None, list[TextOutcome]]],
    parallel: int,
) -> AsyncIterator[TextOutcome]:
    """``in_threads`` for coroutines."""
    _check(parallel)
    parts = batches(texts, len, MOST_LINES, MOST_CHARACTERS)
    running: deque[asyncio.Task[list[TextOutcome]]] = deque()
    try:
        while True:
            while len(running) < parallel and (part := next(parts, None)) is not None:
                running.append(asyncio.create_task(send(part)))
            if not running:
                return
            for outcome in await running[0]:
                yield outcome
            running.popleft()
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def _check(parallel: int) -> None:
    # without a request at a time the texts would seem to have ended
    if parallel < 1:
        raise ValueError("parallel: at least one request at a time")


def _read(response: httpx2.Response) -> Answered:
    *results, last = [json.loads(line) for line in response.content.splitlines()] or [{}]
    if "lines" not in last:
        raise UnreachableError("the answer has no end: a proxy may have cut it")
    error = of_fields(last["status"], last) if last.get("error") else None
    return Answered([_outcome(one) for one in results], error)


def _outcome(result: dict[str, Any]) -> TextOutcome:
    if "error" in result:
        return of_fields(result["status"], result)
    return decoded(result["embedding"])


def _passes(outcome: TextOutcome) -> bool:
    return isinstance(outcome, ApiError) and outcome.status in _PASSING
