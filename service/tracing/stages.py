"""Stages of a request: always measured, and spans if the request is traced.

This module does not import OpenTelemetry; ``service.tracing.exporter`` has the spans.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from service.tracing.exporter import RecordedSpan

Attributes = Mapping[str, str | int | float | bool]


_current: ContextVar[RecordedSpan | None] = ContextVar("docsplit_span", default=None)


@contextmanager
def current(span: RecordedSpan | None) -> Iterator[None]:
    """Make stages inside children of ``span``; with None they are only measured."""
    token = _current.set(span)
    try:
        yield
    finally:
        _current.reset(token)


class Stage:
    """A context manager that measures its block; stages inside become its children.

    Args:
        name: name of the span.
        client: marks a call to another server.
    """

    __slots__ = (
        "_attributes",
        "_client",
        "_ended",
        "_error",
        "_name",
        "_parent",
        "_span",
        "_started",
    )

    def __init__(self, name: str, *, client: bool = False) -> None:
        self._name = name
        self._client = client
        self._attributes: dict[str, str | int | float | bool] = {}
        self._ended: float | None = None
        self._error: BaseException | None = None

    def __enter__(self) -> Self:
        self._started = time.monotonic()
        self._parent = _parent()
        self._span: RecordedSpan | None = None
        if self._parent is not None:
            self._span = self._parent.child(self._name, self._started, client=self._client)
            _current.set(self._span)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None and self._ended is None:
            self._error = error
        self.stop()
        if self._span is not None and self._ended is not None:
            self._span.end(self._ended, self._attributes, self._error)

    @property
    def seconds(self) -> float:
        """Seconds from the start to ``stop``, or until now."""
        return (time.monotonic() if self._ended is None else self._ended) - self._started

    def note(self, attributes: Attributes) -> None:
        """Add attributes: only our counts and names, never the caller's data."""
        if self._span is not None:
            self._attributes.update(attributes)

    def fail(self, error: BaseException) -> None:
        """Mark the stage as failed by an error that is handled inside."""
        self._error = error

    def stop(self) -> None:
        """End the stage before its block ends: the rest belongs to the enclosing stage."""
        if self._ended is None:
            self._ended = time.monotonic()
            if self._span is not None:
                _current.set(self._parent)


def record(
    name: str,
    started: float,
    ended: float,
    attributes: Attributes,
    error: BaseException | None = None,
) -> None:
    """Add a stage that ran in other threads, by its times on ``time.monotonic``'s clock."""
    parent = _parent()
    if parent is not None:
        parent.child(name, started).end(ended, attributes, error)


def _parent() -> RecordedSpan | None:
    span = _current.get()
    return None if span is None or span.ended else span
