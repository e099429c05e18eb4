"""The gate measures graphs against their source."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np
from tokenizers import Tokenizer

from docsplit.bundles.manifest import Parity, PrecisionName, TaskParity
from docsplit.windowing.documents import BY_TOKENS, Window, document_vectors, read
from docsplit.windowing.tokens import DocumentTokenizer
from docsplit.windowing.weighing import Weighing
from export.checkpoint.source import Source, reference_vectors
from export.checkpoint.tokenizer import batches
from export.checks.engines import Encode, Inputs, named, open_engine, source_engine
from export.checks.finite import check_graph, check_values
from export.checks.parity import cosines, measure
from export.checks.thresholds import AnyParity, Given, floors, losses
from export.errors import ExportError
from export.progress import Report
from export.tasks.loss import figure, judge
from export.tasks.task import Task

MEASURED_BATCH = 8
# of the fp32 graph on the first passages; below it, something else than rounding is wrong
TRACED = 0.9999
_TRACED_PASSAGES = 16
# passages that show what an operator's rounding costs, and the tokens read from each
_SAMPLE = 8
SAMPLE_TOKENS = 64


@dataclass(frozen=True)
class Measured:
    """A graph's measurements.

    Attributes:
        parity: the figures.
        closeness: of each text's output to the source's, higher is closer, float64 ``[texts]``.
        seconds: the time that the graph took for the texts.
    """

    parity: AnyParity
    closeness: np.ndarray
    seconds: float


class Judge(Protocol):
    """Measures the graphs of one source: ``Gate``, or for a re-ranker ``PairGate``."""

    def parity(self, name: PrecisionName, graph: Path) -> Measured:
        """Measure a graph without its tasks."""
        ...

    def with_losses(self, name: PrecisionName, graph: Path, parity: AnyParity) -> AnyParity:
        """``parity`` with the losses at tasks."""
        ...

    def sample(self, measured: Measured) -> list[Inputs]:
        """A few short inputs, half of them those with the largest errors."""
        ...


class Gate:
    """Measures the graphs of one source.

    Args:
        source: the checkpoint in fp32.
        tokenizer: the bundle's tokenizer.
        paragraphs: the paragraphs for parity.
        tasks: the tasks for losses; may be empty.
        threads: processor threads of the engines.
        report: called with each step and its progress.
        thresholds: thresholds that replace the usual ones.
        weighing: gives the windows of the tasks' documents their weights.
    """

    def __init__(
        self,
        source: Source,
        tokenizer: Tokenizer,
        paragraphs: list[str],
        tasks: Sequence[Task],
        *,
        threads: int,
        report: Report,
        thresholds: Given | None = None,
        weighing: Weighing = BY_TOKENS,
    ) -> None:
        self._source = source
        self._weighing = weighing
        self._tokenizer = tokenizer
        self._mixed = paragraphs[:_TRACED_PASSAGES]
        # texts of similar length need little padding
        self._paragraphs = sorted(paragraphs, key=len)
        self._tasks = tasks
        self._threads = threads
        self._report = report
        self._given = thresholds
        self._pad = int(source.tokenizer.pad_token_id)
        self._windows: dict[int, list[list[Window]]] = {}
        self._figures: dict[int, float] = {}

    @cached_property
    def _reference(self) -> np.ndarray:
        step = f"encoding {len(self._paragraphs)} paragraphs with the source"
        found = []
        for start in range(0, len(self._paragraphs), MEASURED_BATCH):
            self._report(step, start / len(self._paragraphs))
            found.append(
                reference_vectors(self._source, self._paragraphs[start : start + MEASURED_BATCH])
            )
        return np.concatenate([vectors.numpy() for vectors in found])

    @cached_property
    def _tokens(self) -> list[Inputs]:
        return self._inputs(self._paragraphs)

    @property
    def dimensions(self) -> int:
        """Dimensions of the source's vectors."""
        return int(self._reference.shape[1])

    def check_trace(self, fp32: Path) -> None:
        """Compare the fp32 graph with the source on a few passages of mixed length.

        Raises:
            ExportError: the graph computes something else, or a vector is not finite.
        """
        self._report("comparing the fp32 graph with the source on 16 passages")
        reference = reference_vectors(self._source, self._mixed).numpy()
        _, encode = open_engine("fp16", fp32, threads=self._threads)
        vectors = np.concatenate([encode(batch) for batch in self._inputs(self._mixed)])
        check_values(self._source.name, {"the source": reference, "the traced graph": vectors})
        worst = float(cosines(vectors, reference).min())
        if worst < TRACED:
            raise ExportError(
                f"{self._source.name}: the traced graph computes other vectors than the source "
                f"(lowest cosine {worst:.4f}), before any rounding; its model code branches in a "
                "way that a trace does not follow"
            )

    def parity(self, name: PrecisionName, graph: Path) -> Measured:
        """Measure a graph: its constants, and its vectors of the paragraphs.

        Raises:
            ExportError: the graph contains or returns values that are not finite.
        """
        check_graph(name, graph)
        reference = self._reference
        engine, encode = open_engine(name, graph, threads=self._threads)
        step = f"measuring the {name} graph"
        vectors, seconds = timed(encode, self._tokens, lambda share: self._report(step, share))
        limits = floors(name, self._given)
        parity = measure(name, vectors, reference, engine=engine, thresholds=limits)
        return Measured(parity, cosines(vectors, reference), seconds)

    def race(self, graphs: Mapping[str, Path]) -> dict[str, float]:
        """Seconds that each fp16 graph takes for the paragraphs, batch by batch in turns."""
        engines = {n: open_engine("fp16", g, threads=self._threads)[1] for n, g in graphs.items()}
        inputs = self._tokens
        seconds = dict.fromkeys(graphs, 0.0)
        for number, batch in enumerate([inputs[0], *inputs]):
            self._report("comparing the speed of the graphs", number / len(inputs))
            for name, encode in engines.items():
                began = time.perf_counter()
                encode(batch)
                # the first run of each graph allocates its memory
                seconds[name] += time.perf_counter() - began if number else 0.0
        return {name: round(value, 3) for name, value in seconds.items()}

    def with_losses(self, name: PrecisionName, graph: Path, parity: AnyParity) -> AnyParity:
        """``parity`` with the losses at the tasks, unless it has them.

        Raises:
            ExportError: a vector is not finite.
        """
        if not self._tasks or (isinstance(parity, Parity) and parity.tasks):
            return parity
        return parity.model_copy(update={"tasks": self.losses(name, graph)})

    def losses(self, name: PrecisionName, graph: Path) -> list[TaskParity]:
        """Measure a graph at the tasks.

        Raises:
            ExportError: a vector is not finite.
        """
        if not self._tasks:
            return []
        _, encode = open_engine(name, graph, threads=self._threads)
        tokenizer = DocumentTokenizer(self._tokenizer, self._source.max_tokens)
        prompt = self._source.prompts.get(self._source.default_prompt or "", "")
        found = []
        for number, task in enumerate(self._tasks):
            if number not in self._windows:
                self._windows[number] = read(tokenizer, task.texts, prompt, weighing=self._weighing)
            windows = self._windows[number]
            if number not in self._figures:
                own = source_engine(self._source)
                self._figures[number] = self._figure(task, windows, "the source", own)
            value = self._figure(task, windows, name, encode)
            found.append(judge(task, self._figures[number], value, losses(name, self._given)))
        return found

    def sample(self, measured: Measured) -> list[Inputs]:
        """The beginnings of some paragraphs: half of them with the lowest cosines, half of all."""
        texts = [self._paragraphs[number] for number in sample(measured.closeness)]
        return self._inputs(texts, min(SAMPLE_TOKENS, self._source.max_tokens))

    def _inputs(self, texts: list[str], tokens: int | None = None) -> list[Inputs]:
        return batches(
            self._tokenizer,
            texts,
            max_tokens=tokens or self._source.max_tokens,
            pad_token_id=self._pad,
            size=MEASURED_BATCH,
        )

    def _figure(self, task: Task, windows: list[list[Window]], side: str, encode: Encode) -> float:
        def advance(share: float) -> None:
            self._report(f"{task.name} on {task.data}: encoding with {side}", share)

        vectors = document_vectors(
            windows,
            lambda ids, mask: encode(named(ids, mask)),
            pad_token_id=self._pad,
            advance=advance,
        )
        return figure(task, vectors, side)


def measure_all(
    judge: Judge, graphs: Mapping[PrecisionName, Path]
) -> dict[PrecisionName, AnyParity]:
    """Measure each graph completely; the tasks, which are slower, come last.

    Raises:
        ExportError: a graph contains or returns values that are not finite.
    """
    found = {name: judge.parity(name, graph).parity for name, graph in graphs.items()}
    return {name: judge.with_losses(name, graphs[name], one) for name, one in found.items()}


def timed(
    encode: Encode, inputs: Sequence[Inputs], advance: Callable[[float], None]
) -> tuple[np.ndarray, float]:
    """A graph's outputs for all inputs, and the seconds that it took for them."""
    found, seconds = [], 0.0
    for number, batch in enumerate(inputs):
        advance(number / len(inputs))
        began = time.perf_counter()
        found.append(encode(batch))
        seconds += time.perf_counter() - began
    return np.concatenate(found), seconds


def sample(closeness: np.ndarray) -> list[int]:
    """Positions of a few texts: half of them with the largest errors, half of all."""
    order = np.argsort(closeness, kind="stable")
    half = _SAMPLE // 2
    rest = order[half:]
    return [int(one) for one in (*order[:half], *rest[:: max(1, len(rest) // half)][:half])]
