"""A request as a value, which a client or a coroutine sends."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import httpx2

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One request.

    Attributes:
        method: of HTTP.
        path: with its query, percent-encoded.
        read: makes the result from a successful answer.
        body: sent as JSON; None for no body.
        headers: besides those of every request.
        idempotent: whether a request that was perhaps carried out may be sent again.
    """

    method: str
    path: str
    read: Callable[[httpx2.Response], T]
    body: Mapping[str, Any] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    idempotent: bool = True

    @property
    def content(self) -> bytes | None:
        """The body in UTF-8.

        Raises:
            ValueError: a number is not finite, or a text has half a surrogate pair.
        """
        if self.body is None:
            return None
        return json.dumps(self.body, ensure_ascii=False, allow_nan=False).encode()


Steps = Generator[Call[Any] | float, Any, T]
"""Several requests: yields each and receives its result; yields a number to wait for seconds."""


def parsed(response: httpx2.Response) -> Any:
    """The JSON of an answer."""
    return response.json()


def nothing(_: httpx2.Response) -> None:
    """No result: the status says everything."""


def raw(response: httpx2.Response) -> bytes:
    """The bytes of an answer."""
    return response.content


def path(*segments: str, **query: Any) -> str:
    """A path from plain segments, which may contain any character, and a query without None."""
    given = {name: value for name, value in query.items() if value is not None}
    asked = "&".join(f"{name}={quote(str(value), safe='')}" for name, value in given.items())
    whole = "".join(f"/{_segment(one)}" for one in segments)
    return f"{whole}?{asked}" if asked else whole


def _segment(text: str) -> str:
    encoded = quote(text, safe="")
    # URLs drop the segments . and .., so these need an escape that quote does not make
    return encoded.replace(".", "%2E") if encoded in (".", "..") else encoded
