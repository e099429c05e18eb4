"""The ranking features of pairs of documents."""

from dataclasses import replace

import numpy as np

from docsplit.heads.pairs import FEATURES, Pairs, features


def pairs() -> Pairs:
    return Pairs(
        cosines=np.array([0.9, 0.1, 0.5]),
        words=np.array([0.2, 0.4, 0.0]),
        fused=np.array([1.0, 0.0, -1.0]),
        popularity=np.array([0, 9, 1]),
        title=np.array([1.0, np.nan, 0.3]),
        citing_length=np.array([1000.0, 1000.0, 1000.0]),
        cited_length=np.array([10.0, 1000.0, 100_000.0]),
        differences=np.array([[3.0], [-2.0], [np.nan]]),
    )


def test_features_are_finite_and_of_the_documented_width() -> None:
    found = features(pairs())
    assert found.shape == (3, FEATURES + 2)
    assert found.dtype == np.float32
    assert np.isfinite(found).all()
    assert features(replace(pairs(), differences=np.zeros((3, 0)))).shape == (3, FEATURES)


def test_unknown_titles_and_differences_are_neutral() -> None:
    found = features(pairs())
    assert found[:, 10].tolist() == [1.0, 0.5, np.float32(0.3)]
    assert found[:, 11].tolist() == [1.0, 0.0, 0.0]
    assert found[:, 12].tolist() == [1.0, -1.0, 0.0]
    assert found[2, 13] == 0


def test_only_absolute_features_change_with_the_scale_of_a_score() -> None:
    before = features(pairs())
    after = features(replace(pairs(), words=pairs().words / 2))
    changed = np.flatnonzero((before != after).any(axis=0))
    assert changed.tolist() == [4]


def test_a_single_candidate_has_neutral_standard_scores() -> None:
    one = Pairs(*(getattr(pairs(), name)[:1] for name in Pairs.__dataclass_fields__))
    assert features(one)[0, [1, 2, 5, 6]].tolist() == [0, 0, 0, 0]
