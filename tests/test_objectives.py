"""The study of the objectives: its settings and its table."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from studies.encoders.objectives import RECIPES, report, settings
from training.evaluation.results import Figure, Measured, Result, path_of, write


def test_every_recipe_is_a_separate_run(tmp_path: Path) -> None:
    given = Namespace(
        start="start",
        documents=tmp_path / "d.jsonl",
        out=tmp_path,
        max_tokens=128,
        batch=32,
        steps=10,
        learning_rate=5e-5,
        precision="fp32",
        temperature=0.05,
        windows=1,
        static_width=None,
    )
    made = [settings(given, recipe, seed) for recipe in RECIPES for seed in (0, 1)]
    assert len({str(run.run.output) for run in made}) == len(made)
    assert len({run.objective.model_dump_json() for run in made}) == len(RECIPES)
    static = settings(Namespace(**vars(given) | {"static_width": 64}), "docsplit", 0)
    assert (static.backbone.static_width, static.objective.mlm_weight) == (64, 0)


def test_a_recipe_is_a_row_with_its_interval_over_the_seeds(tmp_path: Path) -> None:
    made = {"start": 0.5, "docsplit 0": 0.6, "docsplit 1": 0.7, "docsplit 2": 0.8, "simcse 0": 0.4}
    for encoder, value in made.items():
        result = Result(
            task="retrieval",
            data="papers",
            encoder=encoder,
            kind="folder",
            revision="r",
            details={},
            key="k",
            left_out=0,
            measured=Measured(figures={"ndcg_10": Figure(value=value)}),
            seconds_per_1000_words=None,
        )
        write(path_of(tmp_path, "retrieval", "papers", encoder), result)
    lines = report(tmp_path, ["docsplit", "simcse", "span"]).splitlines()
    rows = dict(line.strip("| ").split(" | ") for line in lines[2:])
    # t with 2 degrees of freedom, 4.303, times .1 over the root of 3
    assert rows == {"start": ".500", "docsplit": ".700 ± .248", "simcse": ".400", "span": "–"}
