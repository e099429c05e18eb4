"""Choose threads, streams and batch size by a short measurement at the start.

It measures candidates and the default in turn on random token ids. It accepts a candidate only if
that beats the default in every round, and by more than ``MARGIN`` in the median: on a noisy
machine the default stays. It leaves out candidates that it cannot measure ``ROUNDS`` times in time.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import structlog

from docsplit.engines.interface import Engine

log = structlog.get_logger("docsplit")

# with fewer, no other choice was ever faster, and measuring takes half of the start
LEAST_CORES = 4
MARGIN = 0.05
ROUNDS = 3
MOST_ROUNDS = 9
# tokens of a window, about the mean of long documents' windows
WINDOW = 256


@dataclass(frozen=True, slots=True)
class Measurement:
    """A candidate. ``ratio`` is its tokens/s over the default's, as the median of the rounds."""

    threads: int
    streams: int
    batch_tokens: int
    tokens_per_second: int
    ratio: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """The engine to use, and the measurements behind the choice."""

    engine: Engine
    threads: int
    batch_tokens: int
    reason: str
    seconds: float
    measured: list[Measurement]

    def summary(self) -> dict[str, Any]:
        """The choice and its measurements, ready for JSON."""
        found: dict[str, Any] = {"streams": self.engine.streams}
        for name in ("threads", "batch_tokens", "reason", "seconds"):
            found[name] = getattr(self, name)
        return found | {"measured": [asdict(one) for one in self.measured]}


@dataclass(eq=False, slots=True)
class _Trial:
    engine: Engine
    threads: int
    batch_tokens: int
    rates: list[float] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{_named(self.threads, self.engine.streams)}, {self.batch_tokens} tokens"

    @property
    def tokens(self) -> int:
        """Tokens of one measurement: one batch in every stream."""
        rows = max(1, self.batch_tokens // WINDOW)
        return rows * WINDOW * self.engine.streams


def splits(threads: int, streams: int, cores: int) -> list[tuple[int, int]]:
    """Threads and streams to try besides one stream per core.

    Args:
        threads: the setting; 0 if it is not set.
        streams: the setting; unless it is 0, there is nothing to try.
        cores: number of cores that the process may use.
    """
    used = threads or cores
    if streams or used == 1:
        return []
    halves = [(used // 2, used // 2)] if not threads and used >= 4 else []
    return [(used, 1), *halves]


def calibrate(
    engine: Engine,
    build: Callable[[int, int], Engine],
    *,
    threads: int,
    others: Sequence[tuple[int, int]],
    batch_tokens: int,
    build_seconds: float,
    vocabulary: int,
    limit: float,
    clock: Callable[[], float] = time.perf_counter,
) -> Calibration:
    """Choose the default or a faster candidate.

    Args:
        engine: the default, warmed up.
        build: compiles an engine for given threads and streams.
        threads: threads of the default.
        others: threads and streams to try.
        batch_tokens: the setting; it is kept unless it is 0. With 0, half and twice the engine's
            own value are tried.
        build_seconds: time that building the default took.
        vocabulary: upper bound of the random token ids.
        limit: seconds.
    """
    runner = _Runner(vocabulary, clock, limit)
    own = batch_tokens or engine.batch_tokens
    best = default = _Trial(engine, threads, own)
    trials: list[_Trial] = []
    try:
        rate = runner.probe(default)
        small = _Trial(engine, threads, WINDOW)
        rivals = [small]
        for many, streams in others:
            if runner.left < build_seconds:
                break
            if (rival := _built(build, many, streams)) is not None:
                rivals.append(rival)
        fastest = runner.compare(rivals, rate)
        trials += [trial for trial in rivals if trial.rates]
        if fastest is not small:
            best = _Trial(fastest.engine, fastest.threads, own)
        if not batch_tokens:
            sizes = [best, *(_Trial(best.engine, best.threads, n) for n in (own // 2, own * 2))]
            best = runner.compare(sizes, rate)
            trials += [trial for trial in sizes if trial.rates]
    except Exception as error:  # noqa: BLE001 - runtimes share no base class of exceptions
        log.warning("calibration_failed", reason=f"{type(error).__name__}: {error}")
        best, trials = default, []
        reason = "the measurement failed, so the default stays"
    else:
        reason = _reason(best, default, trials, limit)
    finally:
        runner.close()
    seconds = round(limit - runner.left, 2)
    measured = [
        Measurement(
            trial.threads,
            trial.engine.streams,
            trial.batch_tokens,
            round(statistics.median(trial.rates)),
            round(runner.ratios[trial], 3),
        )
        for trial in trials
    ]
    return Calibration(best.engine, best.threads, best.batch_tokens, reason, seconds, measured)


class _Runner:
    def __init__(self, vocabulary: int, clock: Callable[[], float], limit: float) -> None:
        self._ids = np.random.default_rng(0)
        self._vocabulary = vocabulary
        self._clock = clock
        self._until = clock() + limit
        # a runtime may prepare data for every thread that calls it
        self._pools: dict[Engine, ThreadPoolExecutor] = {}
        self.ratios: dict[_Trial, float] = {}

    def close(self) -> None:
        """Stop the threads that call the engines."""
        for pool in self._pools.values():
            pool.shutdown()

    @property
    def left(self) -> float:
        """Remaining seconds."""
        return self._until - self._clock()

    def probe(self, trial: _Trial) -> float:
        """Tokens/s of one small measurement."""
        return self._measure(_Trial(trial.engine, trial.threads, WINDOW))

    def compare(self, trials: list[_Trial], rate: float) -> _Trial:
        """The fastest trial; the first one unless another is clearly faster."""
        first, *rest = trials
        # one more round warms up the new engines
        while rest and (ROUNDS + 1) * sum(t.tokens for t in (first, *rest)) > rate * self.left:
            rest.remove(max(rest, key=lambda trial: trial.tokens))
        for trial in list(rest):
            if not self._works(trial):
                rest.remove(trial)
        if not rest:
            return first
        done = 0
        while done < ROUNDS or (done < MOST_ROUNDS and self._fits([first, *rest], rate)):
            for trial in [first, *rest] if done % 2 else [*rest, first]:
                trial.rates.append(self._measure(trial))
            done += 1
        self.ratios[first] = 1.0
        best = first
        for trial in rest:
            ratios = [a / b for a, b in zip(trial.rates, first.rates, strict=True)]
            self.ratios[trial] = statistics.median(ratios)
            clearly = min(ratios) > 1 and self.ratios[trial] > 1 + MARGIN
            if clearly and self.ratios[trial] > self.ratios[best]:
                best = trial
        return best

    def _fits(self, trials: list[_Trial], rate: float) -> bool:
        return sum(trial.tokens for trial in trials) < rate * self.left

    def _works(self, trial: _Trial) -> bool:
        try:
            self._measure(trial)
        except Exception as error:  # noqa: BLE001 - runtimes share no base class of exceptions
            log.warning("calibration_failed", candidate=trial.name, reason=str(error))
            return False
        return True

    def _measure(self, trial: _Trial) -> float:
        streams = trial.engine.streams
        shape = (trial.tokens // streams // WINDOW, WINDOW)
        ids = self._ids.integers(0, self._vocabulary, size=shape)
        mask = np.ones_like(ids)
        pool = self._pools.setdefault(trial.engine, ThreadPoolExecutor(streams))
        started = self._clock()
        results = list(pool.map(lambda _: trial.engine.run(ids, mask), range(streams)))
        seconds = self._clock() - started
        if not all(np.isfinite(vectors).all() for vectors in results):
            raise ValueError("the vectors are not finite")
        return trial.tokens / max(seconds, 1e-9)


def _named(threads: int, streams: int) -> str:
    return f"{streams} streams on {threads} threads"


def _built(build: Callable[[int, int], Engine], threads: int, streams: int) -> _Trial | None:
    try:
        return _Trial(build(threads, streams), threads, WINDOW)
    except Exception as error:  # noqa: BLE001 - runtimes share no base class of exceptions
        log.warning("calibration_failed", candidate=_named(threads, streams), reason=str(error))
        return None


def _reason(best: _Trial, default: _Trial, trials: Sequence[_Trial], limit: float) -> str:
    if not trials:
        return f"the default, because measuring others takes longer than {limit:g} s (calibrate)"
    same = best.engine is default.engine and best.batch_tokens == default.batch_tokens
    if same:
        return f"nothing was faster than the default by more than {MARGIN:.0%}"
    return f"faster than the default by more than {MARGIN:.0%} in every comparison"
