"""The gate for re-rankers: compares orders and scores with those of the checkpoint."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from docsplit.bundles.manifest import PrecisionName, RankParity
from docsplit.windowing.pairs import PairTokenizer
from export.checks.engines import Inputs, open_engine
from export.checks.finite import check_graph, check_values
from export.checks.gate import MEASURED_BATCH, SAMPLE_TOKENS, Measured, sample, timed
from export.checks.parity import score
from export.checks.thresholds import AnyParity, Given, rank_limits
from export.errors import ExportError
from export.progress import Report
from export.reranker.pairs import TEXTS, inputs, rows, same_order
from export.reranker.source import Pair, PairSource, reference_scores

_TRACED_PAIRS = 16
# largest difference of outputs between the source and the fp32 graph, as a share of their size
_TRACED = 1e-3


class PairGate:
    """Measures the graphs of one cross-encoder.

    Args:
        source: the checkpoint in fp32.
        tokenizer: the bundle's tokenizer, for the source's window.
        pairs: pairs as ``make_pairs`` gives them.
        threads: processor threads of the engines.
        report: called with each step and its progress.
        thresholds: thresholds that replace the usual ones.
    """

    def __init__(
        self,
        source: PairSource,
        tokenizer: PairTokenizer,
        pairs: Sequence[Pair],
        *,
        threads: int,
        report: Report,
        thresholds: Given | None = None,
    ) -> None:
        self._source, self._tokenizer, self._pairs = source, tokenizer, pairs
        self._threads, self._report, self._given = threads, report, thresholds
        self._pad = int(source.tokenizer.pad_token_id)
        self._rows = rows(tokenizer, pairs)
        # rows of similar length need little padding
        self._order = np.argsort([len(row) for row in self._rows], kind="stable")

    @cached_property
    def _reference(self) -> np.ndarray:
        step = f"scoring {len(self._pairs)} pairs with the source"
        found = []
        for start in range(0, len(self._pairs), MEASURED_BATCH):
            self._report(step, start / len(self._pairs))
            found.append(
                reference_scores(self._source, self._pairs[start : start + MEASURED_BATCH])
            )
        return np.concatenate(found)

    def check_trace(self, fp32: Path) -> None:
        """Compare the fp32 graph with the source on a few pairs.

        Raises:
            ExportError: the graph computes something else, or a score is not finite.
        """
        self._report(f"comparing the fp32 graph with the source on {_TRACED_PAIRS} pairs")
        reference = reference_scores(self._source, self._pairs[:_TRACED_PAIRS])
        _, encode = open_engine("fp16", fp32, threads=self._threads)
        batches = inputs(self._rows[:_TRACED_PAIRS], MEASURED_BATCH, self._pad)
        found = np.concatenate([encode(batch) for batch in batches])
        check_values(self._source.name, {"the source": reference, "the traced graph": found})
        worst = float(np.abs(found - reference).max() / max(1.0, float(np.abs(reference).max())))
        if worst > _TRACED:
            raise ExportError(
                f"{self._source.name}: the traced graph computes other scores than the source "
                f"(largest difference {worst:.4f} of their size), before any rounding"
            )

    def parity(self, name: PrecisionName, graph: Path) -> Measured:
        """Measure a graph: its constants, and its scores of the pairs.

        Raises:
            ExportError: the graph contains or returns values that are not finite.
        """
        check_graph(name, graph)
        reference = self._reference
        engine, encode = open_engine(name, graph, threads=self._threads)
        step = f"measuring the {name} graph"
        batches = inputs([self._rows[i] for i in self._order], MEASURED_BATCH, self._pad)
        outputs, seconds = timed(encode, batches, lambda share: self._report(step, share))
        logits = np.empty_like(reference)
        logits[self._order] = outputs
        check_values(name, {"the source": reference, "the graph": logits})
        errors = np.abs(score(logits) - score(reference))[:, 0]
        tau, first = same_order(logits[:, 0], reference[:, 0])
        parity = RankParity(
            queries=-(-len(self._pairs) // TEXTS),
            pairs=len(self._pairs),
            kendall_tau=round(tau, 7),
            same_first=round(first, 7),
            score_error_mean=round(float(errors.mean()), 7),
            score_error_max=round(float(errors.max()), 7),
            engine=engine,
            thresholds=rank_limits(name, self._given),
        )
        return Measured(parity, -errors, seconds)

    def with_losses(self, name: PrecisionName, graph: Path, parity: AnyParity) -> AnyParity:
        """``parity``, because there are no tasks for re-rankers."""
        return parity

    def sample(self, measured: Measured) -> list[Inputs]:
        """The beginnings of some pairs: half of them with the largest errors, half of all."""
        chosen = [self._pairs[number] for number in sample(measured.closeness)]
        short = self._tokenizer.shortened(min(SAMPLE_TOKENS, self._source.max_tokens))
        return inputs(rows(short, chosen), MEASURED_BATCH, self._pad)
