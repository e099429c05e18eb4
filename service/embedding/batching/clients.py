"""The client of the current work; the service is fair between clients."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Client:
    """A client whose work the service does.

    Attributes:
        name: identifies the client; contains no secret.
        weight: share of the engine relative to clients of weight 1.
    """

    name: str
    weight: float = 1.0


UNNAMED = Client("")
# work that nobody waits for: re-embedding and trainings
BACKGROUND = Client("background", 1 / 16)

_current: ContextVar[Client] = ContextVar("client", default=UNNAMED)


def current() -> Client:
    """The client of the running task."""
    return _current.get()


@contextmanager
def working_for(client: Client) -> Iterator[None]:
    """Assign the block, and tasks that it starts, to ``client``."""
    token = _current.set(client)
    try:
        yield
    finally:
        _current.reset(token)
