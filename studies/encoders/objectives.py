"""Which objective improves start weights most? Studied on 2026-11-22.

    python -m studies.encoders.objectives START --documents train.jsonl --data data --sets bbc

Trains each recipe once per seed (``docsplit-train``) from the same start weights, on the same
documents and for the same number of steps. Measures each encoder as ``docsplit-evaluate`` does, and
reports the mean over the seeds with its 95 % interval (Student's t). The start weights are measured
too: a recipe below them was not worth its training. The command keeps finished runs and
measurements, so that an interrupted study continues.

All recipes add the loss of the masked language model at the trainer's default weight; ``mlm`` has
no other loss.

With ``--static-width`` the recipes train a static branch, on whole documents, without masked words
(2026-11-25). The branch is measured almost by itself: its share is .999, and START may be a tiny
encoder with random weights, whose tokenizer is all that matters.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from scipy import stats

from docsplit.corpora.catalogue import Found, discover
from docsplit.corpora.fields import Fields
from training.errors import SettingsError, TrainingError
from training.evaluation.report.markdown import main_figure, main_heading
from training.evaluation.report.text import figure, table
from training.evaluation.results import Figure, every
from training.evaluation.run import Request, evaluate
from training.evaluation.tasks.registry import TASKS, chosen
from training.evaluation.tasks.task import Options
from training.settings import Settings
from training.trainer.loop import TrainingRun
from training.trainer.output import RECORD
from training.trainer.resumption import check_settings, fixed_settings

RECIPES: dict[str, dict[str, Any]] = {
    "mlm": {"view": "mlm"},
    "simcse": {"view": "simcse"},
    "span": {"view": "span"},
    "slice": {"view": "slice"},
    "span+slice": {"view": "span+slice"},
    "laser-self": {"view": "laser-self"},
    "laser-intra": {"view": "laser-intra"},
    "docsplit": {"view": "docsplit"},
    "docsplit+laser-self": {"view": "docsplit", "mix": "laser-self"},
    "docsplit+laser-window": {"view": "docsplit", "mix": "laser-window"},
}
START = "start"
_STATIC_CHUNK = 131_072


def settings(given: argparse.Namespace, recipe: str, seed: int) -> Settings:
    """A run of the study. All other settings are the trainer's defaults."""
    made: dict[str, dict[str, Any]] = {
        "data": {"path": str(given.documents), "cache": given.out / "cache"},
        "backbone": {"path": given.start, "max_tokens": given.max_tokens},
        "objective": {
            **RECIPES[recipe],
            "temperature": given.temperature,
            "windows": given.windows,
        },
        "optimisation": {
            "batch_size": given.batch,
            "max_steps": given.steps,
            "learning_rate": given.learning_rate,
            "precision": given.precision,
        },
        "run": {
            "output": given.out / "runs" / f"{recipe}-{seed}",
            "seed": seed,
            "checkpoint_every": 100,
            "evaluate_every": 1_000_000,
            "tensorboard": False,
        },
    }
    if given.static_width is not None:
        made["backbone"] |= {"static_width": given.static_width, "static_share": 0.999}
        made["objective"] |= {"mlm_weight": 0.0}
        made["optimisation"] |= {"chunk_tokens": _STATIC_CHUNK, "length_group": 1}
    return Settings.model_validate(made)


def trained(given: argparse.Namespace, recipe: str, seed: int) -> Path | None:
    """The encoder of a recipe and seed; None if its training was interrupted.

    Raises:
        CheckpointError: the folder holds an encoder that was trained by other settings.
    """
    made = settings(given, recipe, seed)
    model = made.run.output / "model"
    if model.is_dir():
        record = json.loads((model / RECORD).read_text(encoding="utf-8"))
        held, mine = (
            fixed_settings(one, "") for one in (Settings.model_validate(record["settings"]), made)
        )
        check_settings(made.run.output, held, mine)
        return model
    result = TrainingRun(made).run()
    return result.model if result.finished else None


def chosen_sets(given: argparse.Namespace) -> list[Found]:
    """The sets to measure on.

    Raises:
        SettingsError: a set is not in the data.
    """
    fields = Fields(limit=given.limit)
    sets = [found for found in discover(given.data, fields, {}) if found.name in given.sets]
    missing = sorted(set(given.sets) - {found.name for found in sets})
    if missing:
        raise SettingsError(f"--sets: no set {missing[0]!r} in --data")
    return sets


def measure(
    given: argparse.Namespace, sets: Sequence[Found], encoder: str, console: Console
) -> None:
    """Add the results of an encoder to the study's folder."""
    request = Request(
        encoders=[encoder],
        sets=sets,
        tasks=chosen(given.tasks),
        options=Options(shots=(5, 10), draws=given.draws, copies=(2, 20, 100)),
        out=given.out,
        cache=given.out / "vectors",
        max_tokens=given.max_tokens,
    )
    for line in evaluate(request, console):
        console.print(f"left out: {line}", markup=False)


def report(out: Path, recipes: Sequence[str]) -> str:
    """Markdown: the main figure of every task and set, one row for each recipe."""
    values: dict[tuple[str, str], dict[str, list[float]]] = {}
    for result in every(out):
        shown = main_figure(result)
        if shown is None:
            continue
        recipe = result.encoder.rpartition(" ")[0] or result.encoder
        pair = values.setdefault((result.task, result.data), {})
        pair.setdefault(recipe, []).append(shown.value)
    pairs = sorted(values, key=lambda pair: (list(TASKS).index(pair[0]), pair[1]))
    rows = [
        [recipe, *(interval(values[pair].get(recipe, [])) for pair in pairs)]
        for recipe in (START, *recipes)
    ]
    headings = [f"{data}: {task}, {main_heading(TASKS[task])}" for task, data in pairs]
    return table(["", *headings], rows)


def interval(values: Sequence[float]) -> str:
    """The mean over the seeds with its 95 % interval (Student's t)."""
    if len(values) < 2:
        return figure(Figure(value=values[0]) if values else None)
    half = stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values))
    return figure(Figure(value=float(np.mean(values)), deviation=float(half)))


def main() -> int:
    """Train, measure, and print the results."""
    parser = argparse.ArgumentParser(
        prog="python -m studies.encoders.objectives",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("start", help="folder or hub name of the start weights")
    add(
        "--documents",
        type=Path,
        required=True,
        help="training documents; --sets must not contain them",
    )
    add("--data", type=Path, action="append", required=True, help="data to measure on")
    add("--sets", type=lambda text: text.split(","), required=True, help="sets of --data")
    add("--tasks", type=lambda text: text.split(","), help="default: all that fit the sets")
    add("--recipes", type=lambda text: text.split(","), default=list(RECIPES))
    add("--seeds", type=int, default=3)
    add("--steps", type=int, default=60)
    add("--batch", type=int, default=32)
    add("--learning-rate", type=float, default=5e-5)
    add("--temperature", type=float, default=0.05)
    add("--windows", type=int, default=1, help="windows of a view")
    add("--static-width", type=int, help="train a static branch of this width instead")
    add("--precision", choices=("fp32", "bf16"), default="fp32")
    add(
        "--max-tokens",
        type=int,
        default=128,
        help="length of views in training and of windows afterwards",
    )
    add("--limit", type=int, help="maximum documents of each set and part")
    add("--draws", type=int, default=10)
    add("--out", type=Path, default=Path("runs/objectives"))
    given = parser.parse_args()
    unknown = sorted(set(given.recipes) - set(RECIPES))
    if unknown:
        parser.error(f"--recipes: no recipe {unknown[0]!r}; the recipes are {', '.join(RECIPES)}")
    console = Console(stderr=True, highlight=False)
    try:
        sets = chosen_sets(given)
        measure(given, sets, f"{START}={given.start}", console)
        for seed in range(given.seeds):
            for recipe in given.recipes:
                model = trained(given, recipe, seed)
                if model is None:
                    return 130
                measure(given, sets, f"{recipe} {seed}={model}", console)
                (given.out / "table.md").write_text(report(given.out, given.recipes) + "\n")
    except KeyboardInterrupt:
        console.print("interrupted; to continue, run the same command")
        return 130
    except TrainingError as error:
        console.print(f"studies.encoders.objectives: {error}", markup=False)
        return 1
    print(report(given.out, given.recipes))
    return 0


if __name__ == "__main__":
    sys.exit(main())
