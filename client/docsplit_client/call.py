"""A request as a value, which a client or a coroutine sends."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Generic, TypeAlias, TypeVar
from urllib.parse import quote

import httpx2

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One request.

    Attributes:
        method: of HTTP.
        path: with its query, percent-encoded.
        read: makes the result from a successful answer; its JSON by default.
        body: sent as JSON; None for no body.
        files: sent as a form, by name, in place of a body.
        raw_body: sent as it is, in place of a body; ``headers`` names its type.
        headers: besides those of every request.
        idempotent: whether a request that was perhaps carried out may be sent again.
    """

    method: str
    path: str
    read: Callable[[httpx2.Response], T] = lambda answer: answer.json()
    body: Mapping[str, Any] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, bytes | Path] | None = None
    raw_body: bytes | None = None
    idempotent: bool = True

    @property
    def form(self) -> list[tuple[str, tuple[str, Any]]] | None:
        """The files as httpx2 sends them: one after the other, without a whole one in memory."""
        if self.files is None:
            return None
        return [
            ("files", (name, File(one) if isinstance(one, Path) else one))
            for name, one in self.files.items()
        ]

    @property
    def content(self) -> bytes | None:
        """The body in UTF-8.

        Raises:
            ValueError: a number is not finite, or a text has half a surrogate pair.
        """
        if self.body is None:
            return self.raw_body
        return json.dumps(self.body, ensure_ascii=False, allow_nan=False).encode()


class File:
    """A file that is open only while it is sent: there may be more than a process can open."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stream: IO[bytes] | None = None

    def tell(self) -> int:
        """Called before the first byte is read."""
        return 0

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """To the start for another try, or the size of the file."""
        self._close()
        return self._path.stat().st_size if whence == os.SEEK_END else offset

    def read(self, size: int) -> bytes:
        """The next bytes."""
        if self._stream is None:
            self._stream = self._path.open("rb")
        found = self._stream.read(size)
        if not found:
            self._close()
        return found

    def _close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None


Steps = Generator["Work[Any] | float", Any, T]
"""Several requests: yields each and receives its result; yields a number to wait for seconds."""
Work: TypeAlias = "Call[T] | Steps[T]"


def authorization(key: str | None) -> dict[str, str]:
    """The header of an API key, without blanks and ends of lines around it; none without a key.

    Raises:
        ValueError: it cannot be a key. The message does not contain it.
    """
    held = "" if key is None else key.strip()
    if not held:
        return {}
    if not (held.isascii() and held.isprintable()) or " " in held:
        raise ValueError("key: an API key has only ASCII characters, without blanks")
    return {"authorization": f"Bearer {held}"}


def several(given: Iterable[T], name: str) -> Iterable[T]:
    """What is given, unless it is one text, whose characters would count as the items.

    Raises:
        TypeError: it is one text.
    """
    if isinstance(given, str):
        raise TypeError(f"{name}: give a list of strings")
    return given


def nothing(_: httpx2.Response) -> None:
    """No result: the status says everything."""


def raw(response: httpx2.Response) -> bytes:
    """The bytes of an answer."""
    return response.content


def path(*segments: str, **query: Any) -> str:
    """A path from plain segments, which may contain any character, and a query without None.

    A list or tuple gives its parameter once for each value.
    """
    asked = "&".join(
        f"{name}={quote(str(one), safe='')}"
        for name, value in query.items()
        for one in (value if isinstance(value, list | tuple) else [value])
        if one is not None
    )
    whole = "".join(f"/{_segment(one)}" for one in segments)
    return f"{whole}?{asked}" if asked else whole


def _segment(text: str) -> str:
    encoded = quote(text, safe="")
    # URLs drop the segments . and .., so these need an escape that quote does not make
    return encoded.replace(".", "%2E") if encoded in (".", "..") else encoded
