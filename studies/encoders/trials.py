"""Every objective from the same start weights with the same budget, several runs at a time.

    python -m studies.encoders.development_parts data runs/parts
    python -m studies.encoders.trials START --documents mix.jsonl.zst \
        --development runs/parts/development --parallel 6 --out runs/trials

Made for a GPU, which one run of a small encoder does not fill. A trial is a training by
``docsplit-train``'s own classes and its measures on the development parts
(``studies.encoders.quick_measures``). The table gives means over the seeds with their 95 %
interval (Student's t). A trial that is done is not repeated. ``--set`` changes a setting of all
recipes, such as ``--set objective.teacher=all-mpnet-base-v2``.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from typing import Any

from studies.encoders import objectives
from studies.encoders.objectives import START, interval
from studies.encoders.quick_measures import measures
from training.evaluation.encoders.folder import FolderEncoder
from training.evaluation.report.text import table
from training.settings import Settings
from training.trainer.loop import TrainingRun

RECIPES: dict[str, dict[str, dict[str, Any]]] = {
    **{name: {"objective": objective} for name, objective in objectives.RECIPES.items()},
    "laser-window": {"objective": {"view": "laser-window"}},
    "coco": {"objective": {"view": "coco"}},
    "docsplit+mlm": {"objective": {"view": "docsplit", "mlm_weight": 0.1}},
    "docsplit-near": {
        "objective": {"view": "docsplit", "negatives_below": 0.9},
        "optimisation": {"cluster_size": 512},
    },
    "links": {
        "objective": {
            "view": "links",
            "mix": "docsplit",
            "mix_share": 0.1,
            "hard_negatives": 1,
        }
    },
}
_SYMMETRIC = {"span", "slice", "span+slice", "mlm"}


def settings(given: argparse.Namespace, recipe: str, seed: int) -> Settings:
    """The settings of a trial."""
    made: dict[str, dict[str, Any]] = {
        "data": {"path": str(given.documents), "cache": given.cache},
        "backbone": {"path": given.start, "max_tokens": given.max_tokens},
        "objective": {
            "windows": given.windows,
            "temperature": given.temperature,
            "mlm_weight": 0.0,
            "symmetric": recipe not in _SYMMETRIC,
        },
        "optimisation": {
            "batch_size": given.batch,
            "max_steps": given.steps,
            "learning_rate": given.learning_rate,
            "precision": given.precision,
            "gradient_cache": True,
            # trials share the memory of the device
            "chunk_tokens": 8_192,
        },
        "run": {
            "output": given.out / "runs" / f"{recipe}-{seed}",
            "seed": seed,
            "checkpoint_every": 10**6,
            "evaluate_every": 10**6,
            "evaluate_documents": 64,
            "tensorboard": False,
            "workers": 2,
        },
    }
    for room, values in RECIPES[recipe].items():
        made[room] |= values
    if recipe == "links":
        made["data"]["links"] = str(given.links)
    for name, value in given.set:
        room, _, setting = name.partition(".")
        made[room][setting] = value
    return Settings.model_validate(made)


def trial(given: argparse.Namespace, recipe: str, seed: int) -> dict[str, float]:
    """Train and measure; the figures also stand in the study's folder."""
    path = given.out / "measured" / f"{recipe}-{seed}.json"
    if path.is_file():
        kept: dict[str, float] = json.loads(path.read_text())["figures"]
        return kept
    began = time.monotonic()
    model = given.start
    if recipe != START:
        result = TrainingRun(settings(given, recipe, seed)).run()
        if result.model is None:
            raise KeyboardInterrupt
        model = str(result.model)
    trained = time.monotonic()
    encoder = FolderEncoder(model, model, given.max_tokens)
    figures = measures(partial(encoder.encode, reading="whole"), given.development)
    path.parent.mkdir(parents=True, exist_ok=True)
    seconds = {"training": trained - began, "measures": time.monotonic() - trained}
    path.write_text(json.dumps({"recipe": recipe, "figures": figures, "seconds": seconds}))
    return figures


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or name.partition(".")[0] not in Settings.model_fields:
        raise argparse.ArgumentTypeError(f"{text!r} is no setting, such as objective.anchor=random")
    return name, value


def report(out: Path) -> str:
    """Markdown: a row for each recipe, a column for each measure."""
    values: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for file in sorted((out / "measured").glob("*.json")):
        kept = json.loads(file.read_text())
        for name, value in kept["figures"].items():
            values[kept["recipe"]][name].append(value)
    recipes = [recipe for recipe in (START, *RECIPES) if recipe in values]
    names = list(values[recipes[0]])
    rows = [[recipe, *(interval(values[recipe][name]) for name in names)] for recipe in recipes]
    return table(["", *names], rows)


def main() -> int:
    """Run the trials and print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m studies.encoders.trials",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("start", help="folder or hub name of the start weights")
    add("--documents", type=Path, required=True)
    add("--links", type=Path, help="links between the documents, for the recipe links")
    add("--development", type=Path, required=True)
    add("--recipes", type=lambda text: text.split(","), help="default: all without links")
    add("--seeds", type=int, default=3)
    add("--steps", type=int, default=64)
    add("--batch", type=int, default=128)
    add("--learning-rate", type=float, default=5e-5)
    add("--temperature", type=float, default=0.05)
    add("--windows", type=int, default=2, help="windows of a view")
    add("--max-tokens", type=int, default=256)
    add("--precision", choices=("fp32", "bf16"), default="bf16")
    add("--parallel", type=int, default=1, help="trials at a time")
    add(
        "--set",
        type=_setting,
        action="append",
        default=[],
        metavar="SECTION.NAME=VALUE",
        help="a setting of docsplit-train for all recipes; repeatable",
    )
    add("--cache", type=Path, default=Path(".cache/training"))
    add("--out", type=Path, default=Path("runs/trials"))
    given = parser.parse_args()
    recipes = given.recipes or [recipe for recipe in RECIPES if recipe != "links"]
    unknown = sorted(set(recipes) - set(RECIPES))
    if unknown:
        parser.error(f"--recipes: no recipe {unknown[0]!r}; the recipes are {', '.join(RECIPES)}")
    trials = [(START, 0)] + [(r, seed) for seed in range(given.seeds) for r in recipes]
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(given.parallel, mp_context=spawn) as pool:
        running = {pool.submit(trial, given, *one): one for one in trials}
        for done in as_completed(running):
            recipe, seed = running[done]
            if (error := done.exception()) is not None:
                print(f"{recipe}, seed {seed}: {error!r}", file=sys.stderr, flush=True)
            else:
                print(f"{recipe}, seed {seed}: {done.result()}", file=sys.stderr, flush=True)
    print(report(given.out))
    return 0


if __name__ == "__main__":
    sys.exit(main())
