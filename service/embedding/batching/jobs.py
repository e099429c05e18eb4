"""Work that waits for the engine: the windows of requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from service.embedding.batching.clients import UNNAMED, Client

if TYPE_CHECKING:
    from docsplit.engines.interface import Engine


@dataclass(frozen=True, slots=True)
class BatchReport:
    """One batch, for metrics: sizes in windows and tokens, time in seconds."""

    windows: int
    tokens: int
    padded_tokens: int
    seconds: float


@dataclass(eq=False, slots=True)
class Model:
    """One of the graphs that share a queue.

    Attributes:
        engine: computes ``engine.streams`` batches at once.
        pad_token_id: fills shorter windows.
        report: called from a worker thread after every batch.
        cost: time of a token, relative to a token of the model that the queue is for.
        single_stream: if not None, an engine with all cores. It computes a batch when no other
            batch runs or waits. Each stream of ``engine`` has only some cores.
    """

    engine: Engine
    pad_token_id: int
    report: Callable[[BatchReport], None] = lambda _: None
    cost: float = 1.0
    single_stream: Engine | None = None


Ids = NDArray[np.int32]

# Lengths are rounded up to a multiple, so that runtimes see few shapes.
ROUND = 8
# Jobs up to this many tokens run in order of arrival: one window of most models.
SHORT = 512


@dataclass(eq=False, slots=True)
class Job:
    """The windows of one request.

    Attributes:
        windows: token ids of each window.
        deadline: on the queue's clock; the queue drops the job after it.
        done: called with the error, or with None once the last vector has arrived.
        client: the client of the request.
        model: the graph that computes the windows; batches hold windows of one model.
        vectors: results by window.
        left: number of windows without a result.
        waiting: windows that are in no batch yet, the longest first.
        waiting_tokens: work of these windows, see ``Window.work``.
    """

    windows: Sequence[Ids]
    deadline: float
    arrived: float
    done: Callable[[BaseException | None], None]
    client: Client = UNNAMED
    model: Model | None = None
    vectors: list[NDArray[np.float32] | None] = field(init=False)
    left: int = field(init=False)
    waiting: dict[Window, None] = field(init=False)
    waiting_tokens: int = field(init=False)
    first_taken: float | None = None
    dropped: bool = False

    def __post_init__(self) -> None:
        self.vectors = [None] * len(self.windows)
        self.left = len(self.windows)
        windows = (Window(self, i, len(w)) for i, w in enumerate(self.windows))
        self.waiting = dict.fromkeys(sorted(windows, key=lambda w: -w.length))
        self.waiting_tokens = sum(window.work for window in self.waiting)

    @property
    def rank(self) -> tuple[int, float]:
        """Jobs of lower rank go first: those with less work left, then those that arrived first.

        The work left counts in steps: up to 512 tokens, 2,048, 8,192 and so on. Without steps, the
        longest of many short jobs would wait for all that arrive after it.
        """
        return (((self.waiting_tokens - 1) // SHORT).bit_length() + 1) // 2, self.arrived


@dataclass(eq=False, slots=True)
class Window:
    """One window of a job."""

    job: Job
    index: int
    length: int

    @property
    def ids(self) -> Ids:
        """Token ids, special tokens included."""
        return self.job.windows[self.index]

    @property
    def work(self) -> int:
        """The cost of the window, in tokens of the model that the queue is for."""
        model = self.job.model
        return self.length if model is None else max(1, round(self.length * model.cost))

    @property
    def padded(self) -> int:
        """The length, rounded up."""
        return -(-self.length // ROUND) * ROUND


def together(lengths: Sequence[int], lead: int, budget: int, overhead: int) -> slice:
    """The windows to batch with a given one, so that all windows together cost least.

    A batch costs its padded tokens plus ``overhead``. The cheapest division of sorted windows into
    runs follows from the cheapest divisions of their tails (dynamic programming).

    Args:
        lengths: padded lengths in tokens, descending.
        lead: position of the given window.
        budget: most padded tokens in a batch; a longer window gets its own batch.
        overhead: fixed cost of a batch, in tokens.

    Returns:
        Positions of the run that contains ``lead``.
    """
    count = len(lengths)
    costs = np.zeros(count + 1)
    ends = [count] * count
    sizes = np.arange(1, max(1, budget // lengths[-1]) + 1)
    for first in range(count - 1, -1, -1):
        length = lengths[first]
        most = min(max(1, budget // length), count - first)
        offers = costs[first + 1 : first + most + 1] + length * sizes[:most]
        best = int(offers.argmin())
        costs[first] = offers[best] + overhead
        ends[first] = first + best + 1
    first = 0
    while ends[first] <= lead:
        first = ends[first]
    return slice(first, ends[first])
