"""Pairs of a query and a text, made of real passages."""

from collections.abc import Sequence

import numpy as np
from scipy.stats import kendalltau

from docsplit.windowing.pairs import PairTokenizer
from docsplit.windowing.windows import Ids
from export.checkpoint.tokenizer import padded
from export.checks.engines import Inputs
from export.reranker.source import Pair

# texts of one query
TEXTS = 10
# lengths of queries in words, and at most
_WORDS = (3, 5, 8, 12)
_TOKENS = 32


def make_pairs(passages: Sequence[str], tokenizer: PairTokenizer) -> list[Pair]:
    """One pair for each passage. ``TEXTS`` passages in a row share a query.

    The query is a run of words from the middle of one of them, so one text answers it well and the
    others hardly do. It is short, so that a pair over the window only loses the end of its text.
    """
    most = min(_TOKENS, tokenizer.room // 4)
    pairs: list[Pair] = []
    for number, start in enumerate(range(0, len(passages), TEXTS)):
        texts = passages[start : start + TEXTS]
        words = texts[number % len(texts)].split()
        length = _WORDS[number % len(_WORDS)]
        first = max(0, (len(words) - length) // 2)
        query = " ".join(words[first : first + length])
        starts = tokenizer.documents.encode(query).starts
        query = query if len(starts) <= most else query[: starts[most]]
        pairs += [(query, text) for text in texts]
    return pairs


def rows(tokenizer: PairTokenizer, pairs: Sequence[Pair]) -> list[Ids]:
    """The model's input for each pair, cut at the window."""
    return [tokenizer.row(query, text) for query, text in pairs]


def inputs(found: Sequence[Ids], size: int, pad_token_id: int) -> list[Inputs]:
    """Batches of at most ``size`` rows, in order."""
    wide = [row.astype(np.int64) for row in found]
    return padded(wide, pad_token_id=pad_token_id, size=size)


def same_order(scores: np.ndarray, reference: np.ndarray) -> tuple[float, float]:
    """Agreement of two orders of each query's texts.

    Args:
        scores: of pairs as ``make_pairs`` gives them, float ``[pairs]``.
        reference: the same.

    Returns:
        Kendall's tau-b (Kendall 1945), the mean of the queries, and the share of queries for which
        both put the same text first.
    """
    taus, first = [], []
    for start in range(0, len(scores), TEXTS):
        mine, theirs = scores[start : start + TEXTS], reference[start : start + TEXTS]
        if len(mine) < 2:
            continue
        tau = float(kendalltau(mine, theirs).statistic)
        # not a number: one side scores all texts alike, so it has no order
        both = np.ptp(mine) == np.ptp(theirs)
        taus.append(tau if np.isfinite(tau) else float(both))
        first.append(mine.argmax() == theirs.argmax())
    return float(np.mean(taus)), float(np.mean(first))
