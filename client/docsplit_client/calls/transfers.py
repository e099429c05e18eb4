"""Large bodies: from a file into a request, and from an answer into a file."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import httpx2

# the extension of a request that names the file for its answer
TARGET = "docsplit.target"
_CHUNK = 1 << 18


class FileStream(httpx2.SyncByteStream, httpx2.AsyncByteStream):
    """The content of a file, read while it is sent; another try reads it again."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __iter__(self) -> Iterator[bytes]:
        with self._path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                yield chunk

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self:
            yield chunk


def attach(request: httpx2.Request, source: Path | None, target: Path | None) -> httpx2.Request:
    """The request with a file as its body, and one for its answer."""
    if source is not None:
        request.stream = FileStream(source)
        request.headers["content-length"] = str(source.stat().st_size)
    if target is not None:
        request.extensions[TARGET] = target
    return request


def send(http: httpx2.Client, request: httpx2.Request) -> httpx2.Response:
    """The answer, whose content goes into the file of the request if there is one."""
    target = request.extensions.get(TARGET)
    response = http.send(request, stream=target is not None)
    if target is None:
        return response
    try:
        if not response.is_success:
            response.read()
            return response
        with _written(target) as file:
            for chunk in response.iter_bytes(_CHUNK):
                file.write(chunk)
    finally:
        response.close()
    return response


async def asend(http: httpx2.AsyncClient, request: httpx2.Request) -> httpx2.Response:
    """``send`` for coroutines."""
    target = request.extensions.get(TARGET)
    response = await http.send(request, stream=target is not None)
    if target is None:
        return response
    try:
        if not response.is_success:
            await response.aread()
            return response
        with _written(target) as file:
            async for chunk in response.aiter_bytes(_CHUNK):
                file.write(chunk)
    finally:
        await response.aclose()
    return response


@contextmanager
def _written(target: Path) -> Iterator[IO[bytes]]:
    """A file that gets its name when it is whole."""
    part = target.with_name(f"{target.name}.part")
    try:
        with part.open("wb") as file:
            yield file
        part.replace(target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
