"""Waiting windows, handed out in batches that waste little padding.

Whose turn it is: clients share the engine by start-time fair queueing (Goyal, Vin & Cheng,
SIGCOMM 1996). Each has a virtual time that grows by the tokens it is served over its weight; the
one furthest behind leads the next batch, and one that has had nothing waiting starts where the
others are. A client that sends a hundred requests at once hence delays another's only one by the
batches that run already. The clock also moves by the tokens handed out over the weights of those
who wait, so that clients who come anew without end starve nobody.

Of a client's jobs one with the least left to compute leads, by orders of magnitude, so that a
short request never waits behind a long document (shortest remaining processing time; Schrage 1968),
except that of jobs older than ``age_limit`` the oldest leads one in four of the client's batches,
so that long documents are not starved, and do not starve short ones. The age counts within a client
only: the age of a flood gives it no claim.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from service.embedding.batching.clients import Client
from service.embedding.batching.compose import together
from service.embedding.batching.jobs import ROUND, Job, Window

# A batch is taken to cost this share of the budget beside its tokens; 18 tokens of 2,048 were
# measured on an AVX2 core, and in simulation shares from 1/128 to 1/32 serve within 1.5 %.
OVERHEAD = 1 / 64
# Only windows of at least this share of the longest come into question for a batch,
MIX = 0.75
# and of those no more than this, nearest in length: the choice runs under the batcher's lock.
CHOICE = 192
# One in so many batches of a client goes to its oldest job where that is over the age limit.
RESCUE = 4


class _Backlog:
    """What waits of one client; ``due`` is its virtual time."""

    def __init__(self, client: Client, due: float) -> None:
        self.client = client
        self.due = due
        self.tokens = 0
        self._since_rescue = RESCUE
        self.jobs: dict[Job, None] = {}
        self._lengths: dict[int, dict[Job, dict[Window, None]]] = {}

    def add(self, job: Job) -> None:
        self.jobs[job] = None
        self.tokens += job.waiting_tokens
        for window in job.waiting:
            self._lengths.setdefault(window.padded, {}).setdefault(job, {})[window] = None

    def remove(self, window: Window) -> None:
        job = window.job
        del job.waiting[window]
        job.waiting_tokens -= window.length
        self.tokens -= window.length
        by_job = self._lengths[window.padded]
        del by_job[job][window]
        if not by_job[job]:
            del by_job[job]
        if not by_job:
            del self._lengths[window.padded]
        if not job.waiting:
            del self.jobs[job]

    def lead(self, now: float, age_limit: float) -> Window:
        """The longest window of the job whose turn it is."""
        self._since_rescue += 1
        job = min(self.jobs, key=lambda job: job.arrived)
        if now - job.arrived > age_limit and self._since_rescue >= RESCUE:
            self._since_rescue = 0
        else:
            job = min(self.jobs, key=lambda job: job.rank)
        return next(iter(job.waiting))

    def of_length(self, length: int) -> Iterator[Window]:
        """Windows of a padded length, those of the jobs with least left first."""
        for job in sorted(self._lengths.get(length, ()), key=lambda job: job.rank):
            yield from self._lengths[length][job]

    def companions(self, lead: Window, budget: int, overhead: int) -> list[Window]:
        """The lead and the windows that it shares a batch with, the longest first."""
        least, most = lead.padded * MIX, min(lead.padded / MIX, max(budget, lead.padded))
        near = [length for length in self._lengths if least <= length <= most]
        chosen: dict[int, list[Window]] = {}
        left = CHOICE
        for length in sorted(near, key=lambda length: abs(length - lead.padded)):
            chosen[length] = list(islice(self.of_length(length), left))
            left -= len(chosen[length])
            if not left:
                break
        first = [lead, *(w for w in chosen[lead.padded] if w is not lead)]
        chosen[lead.padded] = first[:CHOICE]
        windows = [window for length in sorted(chosen, reverse=True) for window in chosen[length]]
        lengths = [window.padded for window in windows]
        return windows[together(lengths, windows.index(lead), budget, overhead)]


class WindowQueue:
    """The waiting windows. Not thread-safe: the batcher holds a lock around every call.

    Args:
        batch_tokens: padded tokens of a batch at most (a single longer window still goes).
        age_limit: seconds after which a job leads one in ``RESCUE`` of its client's batches.
    """

    def __init__(self, batch_tokens: int, age_limit: float) -> None:
        self.batch_tokens = batch_tokens
        self.age_limit = age_limit
        self.tokens = 0
        self._overhead = int(batch_tokens * OVERHEAD)
        self._backlogs: dict[Client, _Backlog] = {}
        # virtual times of clients that have nothing waiting and are ahead of the clock
        self._ahead: dict[Client, float] = {}
        self._clock = 0.0
        self._behind = 0.0

    def __len__(self) -> int:
        return sum(len(backlog.jobs) for backlog in self._backlogs.values())

    def held(self, client: Client) -> int:
        """Tokens of a client that wait."""
        backlog = self._backlogs.get(client)
        return backlog.tokens if backlog else 0

    def share(self, client: Client) -> float:
        """The part of the engine's work that is a client's at present; 0 when nothing waits."""
        if client not in self._backlogs:
            return 0.0
        return client.weight / self._weights()

    def add(self, job: Job) -> None:
        """Let the job's windows wait."""
        client = job.client
        if not self._backlogs:
            # nobody waits, so what was served before gives nobody a claim
            self._ahead.clear()
        if client not in self._backlogs:
            due = max(self._clock, self._ahead.pop(client, 0.0))
            self._backlogs[client] = _Backlog(client, due)
        self._backlogs[client].add(job)
        self.tokens += job.waiting_tokens

    def drop(self, job: Job) -> None:
        """Forget what of the job still waits; what is being computed is thrown away later."""
        job.dropped = True
        for window in list(job.waiting):
            self._remove(window)

    def oldest(self) -> Job | None:
        """The waiting job that arrived first."""
        jobs = (job for backlog in self._backlogs.values() for job in backlog.jobs)
        return min(jobs, key=lambda job: job.arrived, default=None)

    def until_done(self, job: Job, rate: float) -> float:
        """Seconds that a job takes which is to be added, if no shorter ones come after it.

        Args:
            job: goes after those of its client that are of lower rank.
            rate: tokens a second of the engine.
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
        """Drop and return the jobs that cannot be done by their deadlines.

        One that could not have been done in time had it been alone runs until its deadline: what
        is computed of it is kept, so that it goes further when it is asked for again.

        Args:
            now: on the queue's clock.
            rate: tokens a second of the engine; 0 when it is not known.
        """
        jobs = (job for backlog in self._backlogs.values() for job in backlog.jobs)
        late = [job for job in jobs if job.deadline <= now or _hopeless(job, now, rate)]
        for job in late:
            self.drop(job)
        return late

    def take(self, now: float) -> list[Window]:
        """The next batch, the longest window first; empty when nothing waits."""
        if not self._backlogs:
            return []
        turn = min(self._backlogs.values(), key=lambda backlog: backlog.due)
        self._clock = max(self._clock + self._behind, turn.due)
        lead = turn.lead(now, self.age_limit)
        batch = turn.companions(lead, self.batch_tokens, self._overhead)
        batch += self._riders(turn, batch)
        tokens = sum(window.length for window in batch)
        self._behind = tokens / self._weights()
        for window in batch:
            self._hand_out(window, now)
        self._ahead = {c: due for c, due in self._ahead.items() if due > self._clock}
        return batch

    def _riders(self, turn: _Backlog, batch: list[Window]) -> list[Window]:
        """Other clients' windows for the room that is left, while they waste no batch's cost."""
        longest = batch[0].padded
        room = max(1, self.batch_tokens // longest) - len(batch)
        waste = self._overhead
        riders: list[Window] = []
        others = [b for b in self._backlogs.values() if b is not turn]
        others.sort(key=lambda backlog: backlog.due)
        for length in range(longest, int(longest * MIX), -ROUND):
            for backlog in others:
                padding = longest - length
                most = min(room, waste // padding) if padding else room
                found = list(islice(backlog.of_length(length), most))
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
        self._backlogs[job.client].due += window.length / job.client.weight
        self._remove(window)

    def _remove(self, window: Window) -> None:
        client = window.job.client
        backlog = self._backlogs[client]
        backlog.remove(window)
        self.tokens -= window.length
        if not backlog.jobs:
            self._ahead[client] = backlog.due
            del self._backlogs[client]

    def _weights(self) -> float:
        return sum(client.weight for client in self._backlogs)


def _hopeless(job: Job, now: float, rate: float) -> bool:
    if not rate or job.first_taken is not None:
        return False
    least = job.waiting_tokens / rate
    return job.arrived + least <= job.deadline < now + least
