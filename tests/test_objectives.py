"""The study of the objectives: its settings and its table."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path

import pytest

from studies.encoders import small_encoder
from studies.encoders.objectives import RECIPES, report, settings, trained
from training.errors import CheckpointError
from training.evaluation.results import Figure, Measured, Result, path_of, write
from training.trainer.output import write_record


def given_for(folder: Path) -> Namespace:
    return Namespace(
        start="start",
        documents=folder / "d.jsonl",
        out=folder,
        max_tokens=128,
        batch=32,
        steps=10,
        learning_rate=5e-5,
        precision="fp32",
        temperature=0.05,
        windows=1,
        static_width=None,
    )


def test_a_finished_run_of_other_settings_is_not_taken(tmp_path: Path) -> None:
    """Its figures would be in one table with those of the new settings."""
    given = given_for(tmp_path)
    made = settings(given, "docsplit", 0)
    write_record(made.run.output / "model", {"settings": json.loads(made.model_dump_json())})
    assert trained(given, "docsplit", 0) == made.run.output / "model"
    longer = Namespace(**vars(given) | {"steps": 20})
    with pytest.raises(CheckpointError, match=r"optimisation\.max_steps was 10, is 20"):
        trained(longer, "docsplit", 0)


def test_every_recipe_is_a_separate_run(tmp_path: Path) -> None:
    given = given_for(tmp_path)
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


@pytest.mark.parametrize("width", ["32", "100"])
def test_a_small_encoder_has_whole_heads(width: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        small_encoder.main(["--documents", "absent", "--out", "out", "--width", width])
    assert f"--width {width}: give a multiple of 64" in capsys.readouterr().err
