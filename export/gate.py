"""The gate measures graphs against their source."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import onnx
import torch
from scipy.special import expit
from tokenizers import Tokenizer

from docsplit.bundles.manifest import Parity, PrecisionName, RankParity, TaskParity
from docsplit.engines.openvino_cpu import openvino_core
from docsplit.windowing.pairs import PairTokenizer
from docsplit.windowing.tokens import DocumentTokenizer
from docsplit.windowing.vectors import document_vectors, read
from docsplit.windowing.windows import BY_TOKENS, Weighing, Window
from export.engines import Encode, Inputs, named, open_engine, source_engine
from export.errors import ExportError
from export.progress import Report
from export.source import Checkpoint, Pair, PairSource, Source, reference_scores, reference_vectors
from export.tasks import Task, figure, judge
from export.texts import TEXTS, batches, make_pairs, padded, pair_rows, same_order
from export.thresholds import AnyParity, Given, limits, losses

# Check that the weights of a source, the constants of a graph and their outputs are finite.


def check_weights(source: Checkpoint) -> None:
    """Check every parameter of a checkpoint.

    Raises:
        ExportError: a parameter is not finite. The message names it.
    """
    for name, tensor in source.model.state_dict().items():
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            raise ExportError(f"{source.name}: the weight {name} holds values that are not finite")


def check_values(what: str, sides: Mapping[str, np.ndarray]) -> None:
    """Check what the sides of a comparison computed.

    Args:
        what: the checkpoint or precision that is compared.
        sides: the values by the name of their side.

    Raises:
        ExportError: a value is not finite. The message names ``what`` and the side.
    """
    for side, values in sides.items():
        if not np.isfinite(values).all():
            raise ExportError(f"{what}: {side} gives values that are not finite")


def check_graph(precision: PrecisionName, path: Path) -> None:
    """Check every constant of a written graph.

    Raises:
        ExportError: a constant is not finite. The message names the file and the constant.
    """
    for name, values in (_openvino if precision == "int8" else _onnx)(path):
        # A single infinity is a bound, for example for masking attention.
        wrong = np.isnan(values) if values.size == 1 else ~np.isfinite(values)
        if wrong.any():
            raise ExportError(f"{path.name}: the constant {name} holds values that are not finite")


def _onnx(path: Path) -> Iterator[tuple[str, np.ndarray]]:
    model = onnx.load(path)
    yield from _tensors(model.graph.initializer, model.graph.node)
    for function in model.functions:
        yield from _tensors([], function.node)


def _tensors(
    initializers: Iterable[onnx.TensorProto], nodes: Iterable[onnx.NodeProto]
) -> Iterator[tuple[str, np.ndarray]]:
    held = [(tensor.name, tensor) for tensor in initializers]
    for node in nodes:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                held.append((node.output[0], attribute.t))
            elif attribute.type == onnx.AttributeProto.GRAPH:
                yield from _tensors(attribute.g.initializer, attribute.g.node)
    for name, tensor in held:
        values = onnx.numpy_helper.to_array(tensor)
        if np.issubdtype(values.dtype, np.floating):
            yield name, values


def _openvino(path: Path) -> Iterator[tuple[str, np.ndarray]]:
    for op in openvino_core().read_model(path).get_ops():
        if op.get_type_name() == "Constant" and op.get_element_type().is_real():
            yield op.get_friendly_name(), op.data


# Compare a graph's vectors with those of the checkpoint.


def measure(
    precision: PrecisionName,
    vectors: np.ndarray,
    reference: np.ndarray,
    *,
    engine: str,
    thresholds: Mapping[str, float] | None = None,
) -> Parity:
    """Compare unit vectors, float32 ``[paragraphs, dimensions]``, with those of the fp32 source.

    The result may miss ``thresholds``, by default those of ``precision``.

    Raises:
        ExportError: a vector is not finite or not of length 1.
    """
    if vectors.shape != reference.shape:
        raise ExportError(
            f"{precision}: the vectors have shape {vectors.shape}, the source's {reference.shape}"
        )
    check_values(precision, {"the source": reference, "the graph": vectors})
    lengths = np.linalg.norm(vectors, axis=1)
    if np.abs(lengths - 1).max() > 1e-3:
        raise ExportError(f"{precision}: a vector has length {lengths.min():.4f}, not 1")
    figures: dict[str, Any] = {**compare(vectors, reference)}
    least = limits(precision) if thresholds is None else thresholds
    return Parity(paragraphs=len(vectors), **figures, engine=engine, thresholds=dict(least))


def compare(vectors: np.ndarray, reference: np.ndarray) -> dict[str, float]:
    """The gate's figures, by the names of their thresholds: mean and lowest cosine of unit vectors
    float32 ``[paragraphs, dimensions]`` to the source's, and the share of paragraphs whose nearest
    other one is the same."""
    each = cosines(vectors, reference)
    return {
        "cosine_mean": _rounded(each.mean()),
        "cosine_min": _rounded(each.min()),
        "neighbour_agreement": _rounded((_nearest(vectors) == _nearest(reference)).mean()),
    }


def cosines(vectors: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Cosines of unit vectors, row by row, float64 ``[paragraphs]``."""
    found: np.ndarray = (vectors.astype(np.float64) * reference).sum(axis=1)
    return found


def distance(outputs: np.ndarray, exact: np.ndarray) -> float:
    """How far a graph's outputs are from the exact ones, mean of the texts.

    For unit vectors it is 1 - cosine. For the outputs of a re-ranker, float ``[pairs, 1]``, it is
    the absolute difference of the scores.
    """
    if exact.shape[1] == 1:
        return float(np.abs(score(outputs) - score(exact)).mean())
    return float(1 - (outputs * exact).sum(axis=1).mean())


def score(logits: np.ndarray) -> np.ndarray:
    """The scores of a re-ranker's outputs, from 0 to 1: their logistic function, in float64."""
    found: np.ndarray = expit(logits.astype(np.float64))
    return found


def _nearest(vectors: np.ndarray) -> np.ndarray:
    similarity = vectors @ vectors.T
    np.fill_diagonal(similarity, -np.inf)
    nearest: np.ndarray = similarity.argmax(axis=1)
    return nearest


def _rounded(value: np.floating) -> float:
    return round(float(value), 7)


# The gate measures graphs against their source.

MEASURED_BATCH = 8
# passages on which the fp32 graph is compared with the source
_TRACED = 16
# the least cosine there, and the largest difference of scores as a share of their size; beyond
# them something else than rounding is wrong
_TRACED_COSINE, _TRACED_SCORE = 0.9999, 1e-3
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


class Judge(ABC):
    """Measures the graphs of one source.

    Args:
        source: the checkpoint in fp32.
        items: the texts or pairs for parity.
        threads: processor threads of the engines.
        report: called with each step and its progress.
        thresholds: thresholds that replace the usual ones.
    """

    kind: ClassVar[str]

    def __init__(
        self,
        source: Checkpoint,
        items: Sequence[Any],
        *,
        threads: int,
        report: Report,
        thresholds: Given | None = None,
    ) -> None:
        self._items, self._threads, self._report, self._given = items, threads, report, thresholds
        self._pad = int(source.tokenizer.pad_token_id)
        self._name = source.name

    @abstractmethod
    def _exact(self, items: Sequence[Any]) -> np.ndarray:
        """The source's outputs, float32 ``[items, outputs]``."""

    @abstractmethod
    def _inputs(self, items: Sequence[Any], size: int, tokens: int | None = None) -> list[Inputs]:
        """Batches of at most ``size`` items in order, cut to a window or to ``tokens``."""

    @abstractmethod
    def _refuse_trace(self, found: np.ndarray, reference: np.ndarray) -> None:
        """Raise an ``ExportError`` if the fp32 graph's outputs are not the source's."""

    @abstractmethod
    def _compared(
        self, name: PrecisionName, engine: str, found: np.ndarray, reference: np.ndarray
    ) -> tuple[AnyParity, np.ndarray]:
        """The figures of a graph's outputs, and how close each is to the source's."""

    @cached_property
    def _order(self) -> list[int]:
        # inputs of similar length need little padding
        lengths = [len(one["input_ids"][0]) for one in self._inputs(self._items, 1)]
        return [int(one) for one in np.argsort(lengths, kind="stable")]

    @cached_property
    def _reference(self) -> np.ndarray:
        count, found = len(self._items), []
        for start in range(0, count, MEASURED_BATCH):
            self._report(f"encoding {count} {self.kind} with the source", start / count)
            chosen = self._order[start : start + MEASURED_BATCH]
            found.append(self._exact([self._items[number] for number in chosen]))
        reference = np.empty((count, found[0].shape[1]), np.float32)
        reference[self._order] = np.concatenate(found)
        return reference

    @cached_property
    def _batches(self) -> list[Inputs]:
        return self._inputs([self._items[number] for number in self._order], MEASURED_BATCH)

    @abstractmethod
    def calibration(self, texts: Sequence[str]) -> Callable[[int], list[Inputs]]:
        """Gives real inputs in batches of a size; batches of several hold inputs of similar
        length."""

    def check_trace(self, fp32: Path) -> None:
        """Compare the fp32 graph with the source on a few passages of mixed length.

        Raises:
            ExportError: the graph computes something else, or an output is not finite.
        """
        self._report(f"comparing the fp32 graph with the source on {_TRACED} {self.kind}")
        items = self._items[:_TRACED]
        reference = self._exact(items)
        _, encode = open_engine("fp16", fp32, threads=self._threads)
        found = np.concatenate([encode(batch) for batch in self._inputs(items, MEASURED_BATCH)])
        check_values(self._name, {"the source": reference, "the traced graph": found})
        self._refuse_trace(found, reference)

    def parity(self, name: PrecisionName, graph: Path) -> Measured:
        """Measure a graph without its tasks: its constants, and its outputs.

        Raises:
            ExportError: the graph contains or returns values that are not finite.
        """
        check_graph(name, graph)
        reference, outputs, seconds = self._reference, [], 0.0
        engine, encode = open_engine(name, graph, threads=self._threads)
        for number, batch in enumerate(self._batches):
            self._report(f"measuring the {name} graph", number / len(self._batches))
            began = time.perf_counter()
            outputs.append(encode(batch))
            seconds += time.perf_counter() - began
        found = np.empty_like(reference)
        found[self._order] = np.concatenate(outputs)
        check_values(name, {"the source": reference, "the graph": found})
        return Measured(*self._compared(name, engine, found, reference), seconds)

    def with_losses(self, name: PrecisionName, graph: Path, parity: AnyParity) -> AnyParity:
        """``parity`` with the losses at tasks, if there are any."""
        return parity

    def sample(self, measured: Measured) -> list[Inputs]:
        """The beginnings of a few inputs: half of them with the largest errors, half of all."""
        order = np.argsort(measured.closeness, kind="stable")
        half = _SAMPLE // 2
        rest = order[half:]
        chosen = (*order[:half], *rest[:: max(1, len(rest) // half)][:half])
        return self._inputs([self._items[one] for one in chosen], MEASURED_BATCH, SAMPLE_TOKENS)


class Gate(Judge):
    """Measures the vectors of an encoder's graphs, and their losses at tasks.

    Args:
        source: the checkpoint in fp32.
        tokenizer: the bundle's tokenizer.
        paragraphs: the paragraphs for parity.
        tasks: the tasks for losses; may be empty.
        weighing: gives the windows of the tasks' documents their weights.
        options: threads, report and thresholds of ``Judge``.
    """

    kind = "paragraphs"

    def __init__(
        self,
        source: Source,
        tokenizer: Tokenizer,
        paragraphs: Sequence[str],
        tasks: Sequence[Task],
        *,
        weighing: Weighing = BY_TOKENS,
        **options: Any,
    ) -> None:
        super().__init__(source, paragraphs, **options)
        self.source, self._tokenizer, self._tasks = source, tokenizer, tasks
        self._weighing = weighing
        self._windows: dict[int, list[list[Window]]] = {}
        self._figures: dict[int, float] = {}

    @property
    def dimensions(self) -> int:
        """Dimensions of the source's vectors."""
        return int(self._reference.shape[1])

    def _exact(self, items: Sequence[str]) -> np.ndarray:
        found: np.ndarray = reference_vectors(self.source, list(items)).numpy()
        return found

    def _inputs(self, items: Sequence[str], size: int, tokens: int | None = None) -> list[Inputs]:
        longest = min(tokens or self.source.max_tokens, self.source.max_tokens)
        return batches(
            self._tokenizer, list(items), max_tokens=longest, pad_token_id=self._pad, size=size
        )

    def calibration(self, texts: Sequence[str]) -> Callable[[int], list[Inputs]]:
        """See ``Judge``."""
        return lambda size: self._inputs(texts if size == 1 else sorted(texts, key=len), size)

    def _refuse_trace(self, found: np.ndarray, reference: np.ndarray) -> None:
        worst = float(cosines(found, reference).min())
        if worst < _TRACED_COSINE:
            raise ExportError(
                f"{self._name}: the traced graph computes other vectors than the source "
                f"(lowest cosine {worst:.4f}), before any rounding; its model code branches in a "
                "way that a trace does not follow"
            )

    def _compared(
        self, name: PrecisionName, engine: str, found: np.ndarray, reference: np.ndarray
    ) -> tuple[AnyParity, np.ndarray]:
        least = limits(name, self._given)
        parity = measure(name, found, reference, engine=engine, thresholds=least)
        return parity, cosines(found, reference)

    def race(self, graphs: Mapping[str, Path]) -> dict[str, float]:
        """Seconds that each fp16 graph takes for the paragraphs, batch by batch in turns."""
        engines = {n: open_engine("fp16", g, threads=self._threads)[1] for n, g in graphs.items()}
        inputs = self._batches
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
        _, encode = open_engine(name, graph, threads=self._threads)
        tokenizer = DocumentTokenizer(self._tokenizer, self.source.max_tokens)
        prompt = self.source.prompts.get(self.source.default_prompt or "", "")
        found: list[TaskParity] = []
        for number, task in enumerate(self._tasks):
            if number not in self._windows:
                self._windows[number] = read(tokenizer, task.texts, prompt, weighing=self._weighing)
            windows = self._windows[number]
            if number not in self._figures:
                own = source_engine(self.source)
                self._figures[number] = self._figure(task, windows, "the source", own)
            value = self._figure(task, windows, name, encode)
            found.append(judge(task, self._figures[number], value, losses(name, self._given)))
        return parity.model_copy(update={"tasks": found})

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


class PairGate(Judge):
    """Measures the scores of a cross-encoder's graphs, and the orders that they give.

    Args:
        source: the checkpoint in fp32.
        tokenizer: the bundle's tokenizer, for the source's window.
        pairs: pairs as ``make_pairs`` gives them.
        options: threads, report and thresholds of ``Judge``.
    """

    kind = "pairs"

    def __init__(
        self, source: PairSource, tokenizer: PairTokenizer, pairs: Sequence[Pair], **options: Any
    ) -> None:
        super().__init__(source, pairs, **options)
        self._source, self._tokenizer = source, tokenizer

    def _exact(self, items: Sequence[Pair]) -> np.ndarray:
        return reference_scores(self._source, items)

    def _inputs(self, items: Sequence[Pair], size: int, tokens: int | None = None) -> list[Inputs]:
        longest = min(tokens or self._source.max_tokens, self._source.max_tokens)
        tokenizer = self._tokenizer if tokens is None else self._tokenizer.shortened(longest)
        return padded(pair_rows(tokenizer, items), size, self._pad)

    def calibration(self, texts: Sequence[str]) -> Callable[[int], list[Inputs]]:
        """See ``Judge``."""
        rows = pair_rows(self._tokenizer, make_pairs(texts, self._tokenizer))
        return lambda size: padded(rows if size == 1 else sorted(rows, key=len), size, self._pad)

    def _refuse_trace(self, found: np.ndarray, reference: np.ndarray) -> None:
        worst = float(np.abs(found - reference).max() / max(1.0, float(np.abs(reference).max())))
        if worst > _TRACED_SCORE:
            raise ExportError(
                f"{self._name}: the traced graph computes other scores than the source "
                f"(largest difference {worst:.4f} of their size), before any rounding"
            )

    def _compared(
        self, name: PrecisionName, engine: str, found: np.ndarray, reference: np.ndarray
    ) -> tuple[AnyParity, np.ndarray]:
        errors = np.abs(score(found) - score(reference))[:, 0]
        tau, first = same_order(found[:, 0], reference[:, 0])
        parity = RankParity(
            queries=-(-len(found) // TEXTS),
            pairs=len(found),
            kendall_tau=round(tau, 7),
            same_first=round(first, 7),
            score_error_mean=round(float(errors.mean()), 7),
            score_error_max=round(float(errors.max()), 7),
            engine=engine,
            thresholds=limits(name, self._given, ranks=True),
        )
        return parity, -errors


def measure_all(
    judge: Judge, graphs: Mapping[PrecisionName, Path]
) -> dict[PrecisionName, AnyParity]:
    """Measure each graph completely; the tasks, which are slower, come last.

    Raises:
        ExportError: a graph contains or returns values that are not finite.
    """
    found = {name: judge.parity(name, graph).parity for name, graph in graphs.items()}
    return {name: judge.with_losses(name, graphs[name], one) for name, one in found.items()}
