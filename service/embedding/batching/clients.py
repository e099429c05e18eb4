"""The clients of the service, and the share of each in what they use together."""

from collections import Counter
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


def overflow(capacity: int, total: int, held: int, amount: int) -> int:
    """Amount that must leave before a client may add ``amount``; 0 or less if it may add it now.

    A client may hold as much as the store has free (dynamic threshold with factor 1; Choudhury &
    Hahne, "Dynamic queue length thresholds for shared-memory packet switches", IEEE/ACM
    Transactions on Networking 6(2), 1998). A single client may fill half, and n greedy clients
    1 / (n + 1) each. There is always room for a client that holds nothing, and the total never
    exceeds ``capacity``.

    Args:
        capacity: size of the store.
        total: amount that all clients hold.
        held: amount that this client holds.
        amount: amount that it wants to add.
    """
    free = capacity - total - amount
    return held + amount - free


class Quota:
    """What all clients hold together: limited, and shared among them as ``overflow`` says."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.total = 0
        self._held: Counter[Client] = Counter()

    def overflow(self, client: Client, amount: int) -> int:
        """Amount that must leave before the client may add ``amount``; 0 or less if none must."""
        return overflow(self.capacity, self.total, self._held[client], amount)

    def add(self, client: Client, amount: int) -> None:
        """Count what a client takes, or gives back if the amount is negative."""
        self.total += amount
        self._held[client] += amount
        if not self._held[client]:
            del self._held[client]
