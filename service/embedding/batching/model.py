"""A compiled graph, and what its batches need."""

from collections.abc import Callable
from dataclasses import dataclass

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
