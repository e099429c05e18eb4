"""``Client`` and ``AsyncClient``: they send requests, and repeat them where that is safe.

A 429, or a 503 with ``Retry-After``, means that the service did not begin, unless its store failed.
Any other failure may come after the work was done, so only idempotent requests are sent again.

``embed_stream`` embeds any number of texts while they are read, several requests at a time. They go
by lines, so an error of one text is no error of the others.
"""

from __future__ import annotations

import asyncio
import copy
import json
import math
import random
import time
from collections import deque
from collections.abc import (
    AsyncIterator,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Sequence,
)
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Generic, Self, TypeVar, Unpack

import httpx2

from docsplit_client import errors
from docsplit_client.call import Call, Steps, Work, authorization, nothing, path
from docsplit_client.calls import Calls, batches, decoded
from docsplit_client.errors import ApiError, UnreachableError, of_fields
from docsplit_client.types import DocumentHead, EmbedOptions, Vectors

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


T = TypeVar("T")
H = TypeVar("H", httpx2.Client, httpx2.AsyncClient)
# of one try
Outcome = httpx2.Response | httpx2.RequestError
# yields requests, which want their outcome, and seconds to wait; returns the result
Exchange = Generator[httpx2.Request | float, Any, T]

# the answer may take longer than the service's work
GRACE = 10.0
# for a service that chooses the deadline: above the longest that it allows by default
LONGEST = 600.0

# seconds before the second try if the service names none; every further try doubles them
FIRST_WAIT = 0.5
# a service that asks for a longer wait gets no further try
LONGEST_WAIT = 60.0

# raised before a request is sent
_UNSENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
# a further try would fail in the same way, or take as long again
_FINAL = (
    httpx2.ReadTimeout,
    httpx2.LocalProtocolError,
    httpx2.UnsupportedProtocol,
    httpx2.DecodingError,
    httpx2.TooManyRedirects,
)

try:
    _VERSION = version("docsplit-client")
except PackageNotFoundError:
    # a checkout that is not installed
    _VERSION = "0"


class _Base(Calls, Generic[H]):
    _http: H

    def __init__(self, url: str, key: str | None, timeout: float | None, tries: int) -> None:
        if url and not url.startswith(("http://", "https://")):
            raise ValueError("url: begin it with http:// or https://")
        try:
            httpx2.URL(url)
        except httpx2.InvalidURL as error:
            raise ValueError(f"url: {error}") from error
        self._url = url.rstrip("/")
        self._access = authorization(key)
        self._timeout = _checked(timeout)
        self._tries = tries

    def with_timeout(self, seconds: float) -> Self:
        """A client on the same connections whose requests may take this long in the service."""
        other = copy.copy(self)
        other._timeout = _checked(seconds)
        return other

    def _request(self, call: Call[Any]) -> httpx2.Request:
        headers = {
            "accept": "application/json",
            "user-agent": f"docsplit-client/{_VERSION}",
            **self._access,
        }
        if self._timeout is not None:
            headers["x-request-timeout"] = f"{self._timeout:g}"
        if call.body is not None:
            headers["content-type"] = "application/json"
        seconds = GRACE + (LONGEST if self._timeout is None else self._timeout)
        return self._http.build_request(
            call.method,
            self._url + call.path,
            content=call.content,
            files=call.form,
            headers={**headers, **call.headers},
            timeout=httpx2.Timeout(seconds, connect=GRACE),
        )

    def _exchange(self, work: Work[T]) -> Exchange[T]:
        """The requests and waits of a call, or of several."""
        if isinstance(work, Call):
            return (yield from self._tried(work))
        result: Any = None
        while True:
            try:
                step = work.send(result)
            except StopIteration as end:
                answer: T = end.value
                return answer
            if isinstance(step, float):
                result = yield step
            else:
                result = yield from self._exchange(step)

    def _tried(self, call: Call[T]) -> Exchange[T]:
        tries = 0
        # whether an earlier try may have been carried out
        perhaps = False
        while True:
            outcome: Outcome = yield self._request(call)
            tries += 1
            if isinstance(outcome, httpx2.Response) and outcome.is_success:
                return _result(call, outcome)
            if (seconds := _wait(call, outcome, tries, self._tries)) is None:
                break
            perhaps = perhaps or _may_be_done(outcome)
            yield seconds
        if isinstance(outcome, httpx2.RequestError):
            raise errors.UnreachableError(
                f"no answer from the service ({type(outcome).__name__}): check its URL, and "
                "GET /readyz"
            ) from outcome
        # without a result, the answer to the lost try is known
        gone = call.method == "DELETE" and call.read is nothing and outcome.status_code == 404
        if perhaps and gone:
            return call.read(outcome)
        raise errors.of(outcome, _retry_after(outcome))


def _retry_after(response: httpx2.Response) -> float | None:
    """Seconds that the answer asks to wait, from a number or a date; None without either."""
    stated = response.headers.get("retry-after", "")
    if stated.isascii() and stated.isdigit():
        return float(stated)
    try:
        return max(0.0, parsedate_to_datetime(stated).timestamp() - time.time())
    except ValueError:
        return None


def _wait(call: Call[Any], outcome: Outcome, tries: int, most: int) -> float | None:
    """Seconds until the next try; None if there is none.

    Args:
        call: the request.
        outcome: its answer, or the failure of the connection.
        tries: how often it was sent.
        most: how often it may be sent.
    """
    if tries >= most or not _may_repeat(call, outcome):
        return None
    # clients that were refused together come back at different times
    own = FIRST_WAIT * 2.0 ** (tries - 1) * random.uniform(0.5, 1.0)  # noqa: S311
    stated = _retry_after(outcome) if isinstance(outcome, httpx2.Response) else None
    if stated is None:
        return own
    return None if stated > LONGEST_WAIT else max(stated, own)


def _may_be_done(outcome: Outcome) -> bool:
    """Whether the service may have carried the request out, although no success came back."""
    if isinstance(outcome, httpx2.Response):
        if outcome.status_code != 503 or _retry_after(outcome) is None:
            return outcome.status_code != 429
        # only the answer of the store to a write may be lost
        return errors.of(outcome, None).kind == "Store"
    return not isinstance(outcome, _UNSENT)


def _may_repeat(call: Call[Any], outcome: Outcome) -> bool:
    if isinstance(outcome, httpx2.Response):
        passing = outcome.status_code in (429, 502, 503)
    else:
        passing = not isinstance(outcome, _FINAL)
    return passing and (call.idempotent or not _may_be_done(outcome))


def _checked(timeout: float | None) -> float | None:
    """A deadline that a header and a socket can have.

    Raises:
        ValueError: it is not finite, or not above 0.
    """
    if timeout is not None and not 0 < timeout < math.inf:
        raise ValueError("timeout: give seconds above 0, or None for the deadline of the service")
    return timeout


def _result(call: Call[T], answer: httpx2.Response) -> T:
    try:
        return call.read(answer)
    except (ValueError, LookupError, TypeError) as error:
        kind = answer.headers.get("content-type", "no type")
        raise errors.UnreachableError(
            f"an answer ({kind}) that is not the service's: check its URL; perhaps a proxy answered"
        ) from error


class Client(_Base[httpx2.Client]):
    """A client that blocks. Threads may share it.

    Args:
        url: of the service.
        key: API key, if the service requires one.
        timeout: seconds that the service may work on a request; None leaves that to the service.
        tries: how often a request is sent at most.
        http: settings of the connections, such as proxies or certificates.
    """

    def __init__(
        self,
        url: str = "http://localhost:8080",
        *,
        key: str | None = None,
        timeout: float | None = None,
        tries: int = 5,
        http: httpx2.Client | None = None,
    ) -> None:
        super().__init__(url, key, timeout, tries)
        self._http = httpx2.Client() if http is None else http

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def send(self, work: Work[T]) -> T:
        """Send a request, or several, and return the result.

        Raises:
            DocsplitError: no answer came, or the service refused the request.
        """
        steps = self._exchange(work)
        outcome: Outcome | None = None
        try:
            while True:
                step = steps.send(outcome)
                if isinstance(step, httpx2.Request):
                    outcome = self._try(step)
                else:
                    time.sleep(step)
                    outcome = None
        except StopIteration as end:
            answer: T = end.value
            return answer

    def _try(self, request: httpx2.Request) -> Outcome:
        try:
            return self._http.send(request)
        except httpx2.RequestError as error:
            return error

    def embed_stream(
        self, texts: Iterable[str], parallel: int = PARALLEL, **options: Unpack[EmbedOptions]
    ) -> Iterator[TextOutcome]:
        """The vector of each text, or its error, in the order of the texts.

        It reads the texts as it needs them and keeps only some requests in memory, so there may be
        any number of texts.

        Args:
            texts: read by the thread that reads the vectors.
            parallel: requests at a time.
            options: as for ``embed``.

        Raises:
            DocsplitError: as ``embed``, but not for an error of one text.
        """
        return in_threads(texts, lambda part: self.send(outcomes(part, **options)), parallel)

    def all_documents(self, index: str) -> Iterator[DocumentHead]:
        """Every document of an index in the order of ids, without its text."""
        after: str | None = None
        while True:
            page = self.list_documents(index, after, 1000)
            yield from page["documents"]
            if (after := page["next"]) is None:
                return


class AsyncClient(_Base[httpx2.AsyncClient]):
    """A client for coroutines; see ``Client``. Tasks of one event loop may share it.

    Once a loop is closed, another one may use the client, as with several ``asyncio.run``.
    """

    def __init__(
        self,
        url: str = "http://localhost:8080",
        *,
        key: str | None = None,
        timeout: float | None = None,
        tries: int = 5,
        http: httpx2.AsyncClient | None = None,
    ) -> None:
        super().__init__(url, key, timeout, tries)
        self._http = httpx2.AsyncClient() if http is None else http
        # whether its settings are the default, so that another one can replace it
        self._plain = http is None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        self._follow_loop()
        await self._http.aclose()

    async def send(self, work: Work[T]) -> T:
        """``Client.send`` for coroutines."""
        self._follow_loop()
        steps = self._exchange(work)
        outcome: Outcome | None = None
        try:
            while True:
                step = steps.send(outcome)
                if isinstance(step, httpx2.Request):
                    outcome = await self._try(step)
                else:
                    await asyncio.sleep(step)
                    outcome = None
        except StopIteration as end:
            answer: T = end.value
            return answer

    def _follow_loop(self) -> None:
        """Forget connections of a closed event loop: they can be neither used nor closed."""
        lost = self._loop is not None and self._loop.is_closed()
        if lost and self._plain and not self._http.is_closed:
            self._http = httpx2.AsyncClient()
        self._loop = asyncio.get_running_loop()

    async def _try(self, request: httpx2.Request) -> Outcome:
        try:
            return await self._http.send(request)
        except httpx2.RequestError as error:
            return error

    def embed_stream(
        self, texts: Iterable[str], parallel: int = PARALLEL, **options: Unpack[EmbedOptions]
    ) -> AsyncIterator[TextOutcome]:
        """``Client.embed_stream`` for coroutines: use ``async for``."""
        return in_tasks(texts, lambda part: self.send(outcomes(part, **options)), parallel)

    async def all_documents(self, index: str) -> AsyncIterator[DocumentHead]:
        """``Client.all_documents`` for coroutines."""
        after: str | None = None
        while True:
            page = await self.list_documents(index, after, 1000)
            for document in page["documents"]:
                yield document
            if (after := page["next"]) is None:
                return
