"""On whose behalf work is done: the unit between which the service is fair."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Client:
    """Who waits for the work.

    Attributes:
        name: tells clients apart; holds no secret.
        weight: share of the engine beside clients of weight 1.
    """

    name: str
    weight: float = 1.0


UNNAMED = Client("")
# what nobody waits for at this moment: re-embedding and trainings
BACKGROUND = Client("background", 1 / 16)

_current: ContextVar[Client] = ContextVar("client", default=UNNAMED)


def current() -> Client:
    """The client that the running task works for."""
    return _current.get()


@contextmanager
def working_for(client: Client) -> Iterator[None]:
    """What runs inside, and tasks that it starts, work for ``client``."""
    token = _current.set(client)
    try:
        yield
    finally:
        _current.reset(token)
