"""The gate measures a graph against its source and refuses a graph that differs too much."""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from bundles.manifest import Parity, PrecisionName, TaskParity
from export.checkpoint.source import Source, reference_vectors
from export.checkpoint.tokenizer import batches
from export.checks.engines import Encode, named, open_engine, source_engine
from export.checks.finite import check_graph
from export.checks.parity import measure
from export.tasks.loss import figure, judge, refuse_losses
from export.tasks.task import Task
from windowing.documents import Window, document_vectors, read
from windowing.tokens import DocumentTokenizer

MEASURED_BATCH = 8

Report = Callable[[str], None]


class Gate:
    """Measures the graphs of one source.

    Args:
        source: the checkpoint in fp32.
        tokenizer: the bundle's tokenizer.
        paragraphs: the paragraphs for parity.
        tasks: the tasks for losses; may be empty.
        threads: processor threads of the engines.
        report: called with each step and its progress.
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
    ) -> None:
        self._source = source
        self._tokenizer = tokenizer
        self._paragraphs = paragraphs
        self._tasks = tasks
        self._threads = threads
        self._report = report
        self._pad = int(source.tokenizer.pad_token_id)

    @cached_property
    def _reference(self) -> np.ndarray:
        self._report(f"encoding {len(self._paragraphs)} paragraphs with the source")
        return reference_vectors(self._source, self._paragraphs).numpy()

    @property
    def dimensions(self) -> int:
        """Dimensions of the source's vectors."""
        return int(self._reference.shape[1])

    def measure(self, graphs: Mapping[PrecisionName, Path]) -> dict[PrecisionName, Parity]:
        """Measure each graph: its constants, its vectors of the paragraphs, its loss at tasks.

        The slowest measurement comes last. All graphs finish one measurement before the next.

        Raises:
            ExportError: a graph differs too much from the source, loses too much, or contains or
                returns values that are not finite.
        """
        for name, path in graphs.items():
            check_graph(name, path)
        engines = {n: open_engine(n, path, threads=self._threads) for n, path in graphs.items()}
        found = self._parity(engines)
        tasks = self._losses({name: encode for name, (_, encode) in engines.items()})
        return {
            name: parity.model_copy(update={"tasks": tasks[name]}) for name, parity in found.items()
        }

    def _parity(
        self, engines: Mapping[PrecisionName, tuple[str, Encode]]
    ) -> dict[PrecisionName, Parity]:
        reference = self._reference
        inputs = batches(
            self._tokenizer,
            self._paragraphs,
            max_tokens=self._source.max_tokens,
            pad_token_id=self._pad,
            size=MEASURED_BATCH,
        )
        found: dict[PrecisionName, Parity] = {}
        for name, (engine, encode) in engines.items():
            self._report(f"measuring the {name} graph")
            vectors = np.concatenate([encode(batch) for batch in inputs])
            found[name] = measure(name, vectors, reference, engine=engine)
        return found

    def _losses(
        self, engines: Mapping[PrecisionName, Encode]
    ) -> dict[PrecisionName, list[TaskParity]]:
        found: dict[PrecisionName, list[TaskParity]] = {name: [] for name in engines}
        tokenizer = DocumentTokenizer(self._tokenizer, self._source.max_tokens)
        prompt = self._source.prompts.get(self._source.default_prompt or "", "")
        for task in self._tasks:
            windows = read(tokenizer, task.texts, prompt)
            source = self._figure(task, windows, "the source", source_engine(self._source))
            for name, encode in engines.items():
                graph = self._figure(task, windows, name, encode)
                found[name].append(judge(task, source, graph))
        for name, tasks in found.items():
            refuse_losses(name, tasks)
        return found

    def _figure(self, task: Task, windows: list[list[Window]], side: str, encode: Encode) -> float:
        def advance(share: float) -> None:
            self._report(f"{task.name} on {task.data}: encoding with {side}, {share:.0%}")

        vectors = document_vectors(
            windows,
            lambda ids, mask: encode(named(ids, mask)),
            pad_token_id=self._pad,
            advance=advance,
        )
        return figure(task, vectors, side)
