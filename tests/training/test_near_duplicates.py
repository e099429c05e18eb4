"""MinHash signatures and their buckets."""

from __future__ import annotations

import random

import numpy as np
import pytest

from training.documents import PERMUTATIONS, bands_for, later_duplicates, signature


def text(words: int, seed: int) -> list[str]:
    return random.Random(seed).choices([f"w{i}" for i in range(5_000)], k=words)


def shingles(words: list[str]) -> set[tuple[str, ...]]:
    return {tuple(words[i : i + 5]) for i in range(len(words) - 4)}


@pytest.mark.parametrize("changed", [0, 10, 60, 300])
def test_signatures_estimate_the_jaccard_similarity(changed: int) -> None:
    first = text(1_000, 1)
    second = first[changed:] + text(changed, 2)
    a, b = shingles(first), shingles(second)
    truth = len(a & b) / len(a | b)
    estimate = (signature(" ".join(first)) == signature(" ".join(second))).mean()
    assert abs(estimate - truth) < 4 * (truth * (1 - truth) / PERMUTATIONS) ** 0.5 + 1e-9


def test_case_and_space_do_not_count() -> None:
    assert (signature("A b  C\nd e f") == signature("a B c d E f")).all()


def test_later_copies_are_removed_and_originals_stay() -> None:
    originals = [text(300, seed) for seed in range(40)]
    copies = [[*words[:295], "altered"] for words in originals[:10]]
    cousins = [words[:150] + text(150, 99 + i) for i, words in enumerate(originals[10:20])]
    texts = [*originals, *copies, *cousins, originals[0]]
    signatures = np.stack([signature(" ".join(words)) for words in texts])
    dropped = later_duplicates(signatures, 0.8)
    assert np.flatnonzero(dropped).tolist() == [*range(40, 50), 60]
    # Control: at a low threshold half a document in common is enough.
    lax = later_duplicates(signatures, 0.2)
    assert np.flatnonzero(lax).tolist() == list(range(40, 61))


@pytest.mark.parametrize("threshold", [0.3, 0.5, 0.7, 0.8, 0.9, 0.99])
def test_bands_find_pairs_at_the_threshold(threshold: float) -> None:
    bands = bands_for(threshold)
    assert 1 - (1 - threshold ** (PERMUTATIONS // bands)) ** bands >= 0.99


def test_no_document_gives_no_duplicates() -> None:
    assert later_duplicates(np.empty((0, PERMUTATIONS), dtype=np.uint32), 0.8).shape == (0,)
