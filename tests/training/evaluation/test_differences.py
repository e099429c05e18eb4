"""Paired differences of encoders whose answers are known."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import bootstrap

from docsplit.corpora.sets import Documents
from training.evaluation.report import Difference, change, differences, rows, write_report
from training.evaluation.tasks import TASKS
from training.evaluation.tasks.task import (
    Figure,
    Items,
    Measured,
    Options,
    Result,
    path_of,
    read,
    write,
)

Floats = npt.NDArray[np.float64]

DRAW = np.random.default_rng(0)
BASE = DRAW.random(300)


def result(
    encoder: str,
    outcomes: Floats,
    *,
    task: str = "retrieval",
    figure: str = "ndcg_10",
    digest: str = "same",
    draws: Floats | None = None,
) -> Result:
    items = Items(
        digest=digest,
        outcomes={figure: outcomes.tolist()},
        draws={} if draws is None else {figure: draws.tolist()},
    )
    return Result(
        task=task,
        data="claims",
        encoder=encoder,
        kind="bundle",
        revision=encoder,
        details={},
        key=encoder,
        left_out=0,
        measured=Measured(figures={figure: Figure(value=float(outcomes.mean()))}, items=items),
        seconds_per_1000_words=None,
    )


def compared(*others: Result, base: Result | None = None) -> list[Difference]:
    return differences([base or result("base", BASE), *others], "base")


def test_an_encoder_compared_with_itself_differs_by_exactly_0() -> None:
    [found] = compared(result("same", BASE.copy()))
    assert found.after - found.before == 0.0
    assert found.interval == (0.0, 0.0)
    assert found.side == "around"


def test_intervals_lie_on_the_side_of_the_difference() -> None:
    noise = DRAW.normal(0, 0.1, 300)
    noise -= noise.mean()
    worse, equal, better = compared(
        *(result(name, BASE + by + noise) for name, by in (("a", -0.05), ("b", 0), ("c", 0.05)))
    )
    assert [one.side for one in (worse, equal, better)] == ["below", "around", "above"]
    # 300 differences with a deviation of .1 give a mean with one of .1 / sqrt(300)
    for one, by in ((worse, -0.05), (equal, 0), (better, 0.05)):
        assert one.interval == pytest.approx((by - 0.0113, by + 0.0113), abs=0.0015)


def test_few_changed_items_show_nothing() -> None:
    few, enough = BASE.copy(), BASE.copy()
    few[:9] += 0.5
    enough[:10] += 0.5
    found = compared(result("few", few), result("enough", enough))
    assert all(one.interval and one.interval[0] > 0 for one in found)
    assert [one.side for one in found] == ["around", "above"]


def test_pairing_sees_what_separate_means_do_not() -> None:
    better = BASE + 0.01 + DRAW.normal(0, 0.01, 300)
    paired, shuffled = compared(result("p", better), result("s", DRAW.permutation(better)))
    assert paired.after == pytest.approx(shuffled.after)
    assert (paired.side, shuffled.side) == ("above", "around")


def test_intervals_equal_those_of_scipy() -> None:
    other = np.clip(BASE + DRAW.standard_t(2, 300) * 0.05, 0, 1)
    [found] = compared(result("other", other))
    expected = bootstrap(
        (other - BASE,), np.mean, n_resamples=10_000, method="percentile", rng=1
    ).confidence_interval
    assert found.interval == pytest.approx(tuple(expected), abs=5e-4)


def test_draws_widen_an_interval() -> None:
    change_of_draw = np.asarray([0.02, -0.01, 0.04, 0.0, 0.03, -0.02, 0.05, 0.01, 0.02, 0.06])
    outcomes = BASE + 0.02 + DRAW.normal(0, 0.02, 300)
    steady, varied = (
        differences(
            [
                result("base", BASE, draws=np.full(10, 0.5)),
                result("other", outcomes, draws=0.5 + by),
            ],
            "base",
        )[0]
        for by in (np.full(10, 0.02), change_of_draw)
    )
    assert steady.interval is not None
    assert varied.interval is not None
    assert np.mean(varied.interval) == pytest.approx(np.mean(steady.interval), abs=0.002)
    deviation = np.hypot(0.02 / np.sqrt(300), change_of_draw.std() / np.sqrt(10))
    assert np.ptp(varied.interval) == pytest.approx(2 * 1.96 * deviation, rel=0.05)
    assert np.ptp(varied.interval) > 3 * np.ptp(steady.interval)


def test_other_items_are_refused() -> None:
    older = result("older", BASE)
    older = older.model_copy(update={"measured": older.measured.model_copy(update={"items": None})})
    found = compared(result("other", BASE[:50], digest="other"), older, result("same", BASE))
    assert [one.side for one in found] == ["not comparable", "not comparable", "around"]
    assert [one.interval for one in found[:2]] == [None, None]
    assert next(cells[-2:] for cells in rows(found)) == ["–", "not comparable"]


def test_the_table_has_main_figures_and_the_list_all() -> None:
    recall = result("base", BASE, figure="recall_10")
    main = result("base", BASE)
    assert main.measured.items is not None
    assert recall.measured.items is not None
    figures = main.measured.figures | recall.measured.figures
    items = Items(
        digest="same",
        outcomes=main.measured.items.outcomes | recall.measured.items.outcomes,
    )
    both = main.model_copy(update={"measured": Measured(figures=figures, items=items)})
    found = compared(both.model_copy(update={"encoder": "other"}), base=both)
    assert [one.figure for one in found] == ["ndcg_10", "recall_10"]
    assert [cells[:4] for cells in rows(found)] == [["claims", "retrieval", "nDCG@10", "other"]]


def test_the_digest_covers_items_and_options_but_not_the_reading() -> None:
    task, options = TASKS["few-shot"], Options()
    data = Documents("set", ["One.", "Two."])

    def digest(data: Documents, options: Options, texts: list[str], name: str = "few-shot") -> str:
        return TASKS[name].items(data, options, texts, {}).digest

    own = digest(data, options, ["One.", "Two."])
    assert own == digest(data, replace(options, reading="first"), ["One.", "Two."])
    assert "sample" not in task.uses
    assert own == digest(data, replace(options, sample=3), ["One.", "Two."])
    different = [
        digest(data, options, ["Two.", "One."]),
        digest(data, options, ["One."]),
        digest(data, replace(options, draws=3), ["One.", "Two."]),
        digest(data, replace(options, seed=1), ["One.", "Two."]),
        digest(Documents("set", ["One.", "Three."]), options, ["One.", "Two."]),
        digest(data, options, ["One.", "Two."], "probe"),
    ]
    assert len({own, *different}) == 1 + len(different)


def test_outcomes_are_kept_with_five_digits(tmp_path: Path) -> None:
    kept = TASKS["retrieval"].items(
        Documents("set", ["One."]), Options(), ["One."] * 3, {"mrr": np.asarray([1 / 3, 0, 1])}
    )
    assert kept.outcomes == {"mrr": [0.33333, 0.0, 1.0]}
    path = path_of(tmp_path, "retrieval", "claims", "base")
    write(path, result("base", BASE))
    assert read(path) == result("base", BASE)
    assert path.read_text(encoding="utf-8").count("\n") == 1


def test_a_rewritten_report_keeps_its_baseline(tmp_path: Path) -> None:
    for name, by in (("a", 0.0), ("b", 0.1)):
        write(path_of(tmp_path, "retrieval", "claims", name), result(name, BASE + by))
    assert write_report(tmp_path).baseline == "a"
    assert write_report(tmp_path, "b").baseline == "b"
    first = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "## Differences to b" in first
    assert "| claims | retrieval | nDCG@10 | a | " in first
    again = write_report(tmp_path)
    assert again.path.read_text(encoding="utf-8") == first
    content = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert content["baseline"] == "b"
    [found] = content["differences"]
    assert (found["encoder"], found["side"]) == ("a", "below")
    assert found["difference"] == pytest.approx(-0.1)
    assert "items" not in content["results"][0]["measured"]


def test_changes_have_a_sign() -> None:
    assert [change(v) for v in (0.0123, -0.0123, 0.0001, 0.0)] == ["+.012", "−.012", ".000", ".000"]
