"""The queue of waiting windows. It makes batches with little padding.

Clients share the engine by start-time fair queueing (Goyal, Vin & Cheng, SIGCOMM 1996). Each has a
virtual time, which grows by the served tokens divided by the client's weight. The client with the
smallest virtual time leads the next batch. A client that had no waiting work starts at the time of
the others. A client that sends a hundred requests at once therefore delays another client's single
request only by the running batches. The clock also grows by the served tokens divided by the
weights of the waiting clients, so an endless series of new clients starves no client.

Within a client, a job with the least work left leads, in steps of size, so that a short request
never waits behind a long document (shortest remaining processing time; Schrage 1968). There is one
exception: the oldest job over ``age_limit`` leads one in four of the client's batches, so long
documents neither starve nor starve short ones. Age counts only within a client, so a flood gains
no priority by its age.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import InitVar, dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from service.embedding.batching.clients import UNNAMED, Client

if TYPE_CHECKING:
    from docsplit.engines.interface import Engine

# Assumed fixed cost of a batch, as a share of the budget. An AVX2 core measured 18 tokens of 2,048;
# in simulation, shares from 1/128 to 1/32 serve within 1.5 %.
OVERHEAD = 1 / 64
# Only windows of at least this share of the longest length may join a batch,
MIX = 0.75
# and at most this many of the nearest length, because the choice holds the batcher's lock.
CHOICE = 192
# Seconds of work on a job after which its own batches have shown what the engine can do.
PROBE = 2.0
# The oldest job of a client leads one in this many batches if it is over the age limit.
RESCUE = 4


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
        model: the graph that computes the windows; batches hold windows of one model.
        vectors: results by window.
        left: number of windows without a result.
        waiting: windows that are in no batch yet, the longest first.
        waiting_tokens: work of these windows, see ``Window.work``.
        tokens: work of all windows.
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
    tokens: int = field(init=False)
    first_taken: float | None = None
    dropped: bool = False

    def __post_init__(self) -> None:
        self.vectors = [None] * len(self.windows)
        self.left = len(self.windows)
        cost = 1.0 if self.model is None else self.model.cost
        windows = (Window(self, i, len(w), cost) for i, w in enumerate(self.windows))
        self.waiting = dict.fromkeys(sorted(windows, key=lambda w: -w.length))
        self.tokens = self.waiting_tokens = sum(window.work for window in self.waiting)

    @property
    def rank(self) -> tuple[int, float]:
        """Jobs of lower rank go first: those with less work left, then those that arrived first.

        The work left counts in steps: up to 512 tokens, 2,048, 8,192 and so on. Without steps, the
        longest of many short jobs would wait for all that arrive after it.
        """
        return (((self.waiting_tokens - 1) // SHORT).bit_length() + 1) // 2, self.arrived


@dataclass(eq=False, slots=True)
class Window:
    """One window of a job.

    Attributes:
        cost: time of a token, relative to a token of the model that the queue is for.
        work: the cost of the window, in tokens of that model.
        padded: the length, rounded up.
    """

    job: Job
    index: int
    length: int
    cost: InitVar[float]
    work: int = field(init=False)
    padded: int = field(init=False)

    def __post_init__(self, cost: float) -> None:
        self.work = max(1, round(self.length * cost))
        self.padded = -(-self.length // ROUND) * ROUND

    @property
    def ids(self) -> Ids:
        """Token ids, special tokens included."""
        return self.job.windows[self.index]


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


class _Backlog:
    """The waiting work of one client, and the client's virtual time."""

    def __init__(self, client: Client, virtual_time: float) -> None:
        self.client = client
        self.virtual_time = virtual_time
        self.tokens = 0
        self._since_rescue = RESCUE
        self.jobs: dict[Job, None] = {}
        self._lengths: dict[tuple[Model | None, int], dict[Job, dict[Window, None]]] = {}

    def add(self, job: Job) -> None:
        self.jobs[job] = None
        self.tokens += job.waiting_tokens
        for window in job.waiting:
            kind = job.model, window.padded
            self._lengths.setdefault(kind, {}).setdefault(job, {})[window] = None

    def remove(self, window: Window) -> None:
        job = window.job
        del job.waiting[window]
        job.waiting_tokens -= window.work
        self.tokens -= window.work
        kind = job.model, window.padded
        by_job = self._lengths[kind]
        del by_job[job][window]
        if not by_job[job]:
            del by_job[job]
        if not by_job:
            del self._lengths[kind]
        if not job.waiting:
            del self.jobs[job]

    def lead(self, now: float, age_limit: float) -> Window:
        """The longest window of the job that goes next."""
        self._since_rescue += 1
        job = min(self.jobs, key=lambda job: job.arrived)
        if now - job.arrived > age_limit and self._since_rescue >= RESCUE:
            self._since_rescue = 0
        else:
            job = min(self.jobs, key=lambda job: job.rank)
        return next(iter(job.waiting))

    def of_length(self, model: Model | None, length: int) -> Iterator[Window]:
        """A model's windows of a padded length; the jobs with the least work left come first."""
        kind = model, length
        for job in sorted(self._lengths.get(kind, ()), key=lambda job: job.rank):
            yield from self._lengths[kind][job]

    def companions(self, lead: Window, budget: int, overhead: int) -> list[Window]:
        """The lead and the windows that share its batch, the longest first."""
        least, most = lead.padded * MIX, min(lead.padded / MIX, max(budget, lead.padded))
        model = lead.job.model
        lengths_here = (length for kind, length in self._lengths if kind is model)
        near = [length for length in lengths_here if least <= length <= most]
        chosen: dict[int, list[Window]] = {}
        left = CHOICE
        for length in sorted(near, key=lambda length: abs(length - lead.padded)):
            chosen[length] = list(islice(self.of_length(model, length), left))
            left -= len(chosen[length])
            if not left:
                break
        first = [lead, *(w for w in chosen[lead.padded] if w is not lead)]
        chosen[lead.padded] = first[:CHOICE]
        windows = [window for length in sorted(chosen, reverse=True) for window in chosen[length]]
        lengths = [window.padded for window in windows]
        return windows[together(lengths, windows.index(lead), budget, overhead)]


class WindowQueue:
    """The waiting windows. Not thread-safe: the batcher locks every call.

    Args:
        batch_tokens: most padded tokens in a batch (a single longer window still runs).
        age_limit: seconds after which a job leads one in ``RESCUE`` of its client's batches.
    """

    def __init__(self, batch_tokens: int, age_limit: float) -> None:
        self.batch_tokens = batch_tokens
        self.age_limit = age_limit
        self.tokens = 0
        self._overhead = int(batch_tokens * OVERHEAD)
        self._backlogs: dict[Client, _Backlog] = {}
        # virtual times of clients that are ahead of the clock and have no waiting work
        self._ahead: dict[Client, float] = {}
        self._clock = 0.0
        self._behind = 0.0

    def __len__(self) -> int:
        return sum(len(backlog.jobs) for backlog in self._backlogs.values())

    def held(self, client: Client) -> int:
        """Waiting tokens of a client."""
        backlog = self._backlogs.get(client)
        return backlog.tokens if backlog else 0

    def share(self, client: Client) -> float:
        """The client's present share of the engine; 0 if none of its work waits."""
        if client not in self._backlogs:
            return 0.0
        return client.weight / self._weights()

    def add(self, job: Job) -> None:
        """Add a job's windows to the queue."""
        client = job.client
        if not self._backlogs:
            # nobody waits, so former service no longer counts
            self._ahead.clear()
        if client not in self._backlogs:
            virtual_time = max(self._clock, self._ahead.pop(client, 0.0))
            self._backlogs[client] = _Backlog(client, virtual_time)
        self._backlogs[client].add(job)
        self.tokens += job.waiting_tokens

    def drop(self, job: Job) -> None:
        """Remove the job's waiting windows; results of its running windows are discarded."""
        job.dropped = True
        for window in list(job.waiting):
            self._remove(window)

    def oldest(self) -> Job | None:
        """The waiting job that arrived first."""
        jobs = (job for backlog in self._backlogs.values() for job in backlog.jobs)
        return min(jobs, key=lambda job: job.arrived, default=None)

    def until_done(self, job: Job, rate: float) -> float:
        """Seconds that a new job will take if no shorter jobs follow it.

        Args:
            job: goes after its client's jobs of lower rank.
            rate: tokens per second of the engine.
        """
        backlog = self._backlogs.get(job.client)
        ahead = 0
        weights = self._weights()
        rank = job.rank
        if backlog is None:
            weights += job.client.weight
        else:
            ahead = sum(o.waiting_tokens for o in backlog.jobs if o.rank <= rank)
        return (ahead + job.waiting_tokens) / rate * weights / job.client.weight

    def expire(self, now: float, rate: float = 0.0) -> list[Job]:
        """Drop and return the jobs that cannot meet their deadlines.

        ``oversized`` drops those that could not meet them on an idle engine either.

        Args:
            now: on the queue's clock.
            rate: tokens per second of the engine; 0 if unknown.
        """
        jobs = (job for backlog in self._backlogs.values() for job in backlog.jobs)
        late = [job for job in jobs if job.deadline <= now or _hopeless(job, now, rate)]
        for job in late:
            self.drop(job)
        return late

    def oversized(self, now: float, fastest: float) -> list[Job]:
        """Drop and return the jobs that an idle engine could not finish before their deadlines.

        A job counts only once it has run for a while: a rate of former batches may be that of a
        machine which was busy then, or of short texts. Its computed vectors are kept.

        Args:
            now: on the queue's clock.
            fastest: tokens per second of the fastest batch so far.
        """
        found = [
            job
            for backlog in self._backlogs.values()
            for job in backlog.jobs
            if job.first_taken is not None
            and now - job.first_taken > PROBE
            and job.tokens > fastest * (job.deadline - job.arrived)
        ]
        for job in found:
            self.drop(job)
        return found

    def take(self, now: float) -> list[Window]:
        """The next batch, the longest window first; empty if nothing waits."""
        if not self._backlogs:
            return []
        turn = min(self._backlogs.values(), key=lambda backlog: backlog.virtual_time)
        self._clock = max(self._clock + self._behind, turn.virtual_time)
        lead = turn.lead(now, self.age_limit)
        batch = turn.companions(lead, self.batch_tokens, self._overhead)
        batch += self._riders(turn, batch)
        tokens = sum(window.work for window in batch)
        self._behind = tokens / self._weights()
        for window in batch:
            self._hand_out(window, now)
        self._ahead = {c: time for c, time in self._ahead.items() if time > self._clock}
        return batch

    def _riders(self, turn: _Backlog, batch: list[Window]) -> list[Window]:
        """Other clients' windows that fill the batch, while they waste less than a batch costs."""
        longest = batch[0].padded
        room = max(1, self.batch_tokens // longest) - len(batch)
        waste = self._overhead
        riders: list[Window] = []
        others = [b for b in self._backlogs.values() if b is not turn]
        others.sort(key=lambda backlog: backlog.virtual_time)
        for length in range(longest, int(longest * MIX), -ROUND):
            for backlog in others:
                padding = longest - length
                most = min(room, waste // padding) if padding else room
                found = list(islice(backlog.of_length(batch[0].job.model, length), most))
                riders += found
                room -= len(found)
                waste -= padding * len(found)
            if not room or waste < longest - length + ROUND:
                break
        return riders

    def _hand_out(self, window: Window, now: float) -> None:
        job = window.job
        if job.first_taken is None:
            job.first_taken = now
        self._backlogs[job.client].virtual_time += window.work / job.client.weight
        self._remove(window)

    def _remove(self, window: Window) -> None:
        client = window.job.client
        backlog = self._backlogs[client]
        backlog.remove(window)
        self.tokens -= window.work
        if not backlog.jobs:
            self._ahead[client] = backlog.virtual_time
            del self._backlogs[client]

    def _weights(self) -> float:
        return sum(client.weight for client in self._backlogs)


def _hopeless(job: Job, now: float, rate: float) -> bool:
    if not rate or job.first_taken is not None:
        return False
    least = job.waiting_tokens / rate
    return job.arrived + least <= job.deadline < now + least
