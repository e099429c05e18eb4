"""Work that waits for the engine: the windows of requests."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from service.embedding.batching.clients import UNNAMED, Client
from service.embedding.batching.model import Model

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
    waiting: dict["Window", None] = field(init=False)
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
