"""``make train-demo``: DocSplit on the Python Enhancement Proposals, on a CPU, in minutes.

The digest of its id decides whether a document is held out. The training reads no held-out
document, and all measures read only held-out documents. The demo deletes PEP numbers from all
texts, because "PEP 484" in a citing document would reveal the answer.
"""

import argparse
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

from benchmarks.rig.start_bundle import installed_start
from docsplit.corpora.documents import read_links
from docsplit.corpora.fields import DataError
from docsplit.corpora.reading import links_among
from export.errors import explained
from export.options import count, interruptible
from export.tasks import rank
from training.errors import TrainingError
from training.evaluation.metrics import difference_interval
from training.settings import Settings
from training.trainer.loop import TrainingRun
from training.trainer.validation import embed_texts

NUMBERS = r"(?i)\bpep(?:s)?[-\s:`]*\d+`?(?:[-/]\S*)?"
_WINDOWS = 6
_INTERRUPTED = 130
PEPS = Path(__file__).parent
Floats = npt.NDArray[np.float64]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, train, and measure again; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=Path, default=PEPS / "documents.jsonl.gz")
    parser.add_argument("--citations", type=Path, default=PEPS / "citations.csv")
    parser.add_argument("--output", type=Path, default=Path("runs/demo"))
    parser.add_argument("--start", help="start weights; default all-MiniLM-L6-v2 as installed")
    parser.add_argument("--steps", type=count, default=48)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--windows", type=count, default=1, help="windows to keep of each half")
    given = parser.parse_args(arguments)
    try:
        with interruptible():
            return _demo(given)
    except (TrainingError, DataError, OSError) as error:
        print(f"train-demo: {explained(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; to continue, run the same command", file=sys.stderr)
        return _INTERRUPTED


def _demo(given: argparse.Namespace) -> int:
    began = time.monotonic()
    citations = list(read_links(given.citations))
    run = TrainingRun(_settings(given))
    links, _ = links_among(run.cache.names(run.held), citations)
    if not links:
        raise DataError(f"{given.citations}: no held-out document cites another one")
    ranks, recall = _measure(run, links)
    result = run.run()
    if not result.finished:
        return _INTERRUPTED
    new_ranks, new_recall = _measure(run, links)
    first, last = result.first, result.last
    # documents with links are held out
    assert first is not None
    assert last is not None
    low, high = difference_interval(ranks, new_ranks)
    numbers: dict[str, Any] = {
        "held_out_documents": len(run.held),
        "training_documents": len(run.train),
        "discrimination": [first.discrimination, last.discrimination],
        "mrr_of_halves": [first.mrr, last.mrr],
        "citation_mrr": [float(ranks.mean()), float(new_ranks.mean())],
        "citation_mrr_difference_95": (low, high),
        "citation_recall_at_10": [float(recall.mean()), float(new_recall.mean())],
        "citation_queries": len(links),
        "citation_links": sum(map(len, links.values())),
        "steps": result.step,
        "minutes": (time.monotonic() - began) / 60,
    }
    text = json.dumps(numbers, indent=2) + "\n"
    (given.output / "demo.json").write_text(text, encoding="utf-8")
    table = Table("", title=f"{len(run.held)} held-out PEPs")
    for heading in ("before", "after"):
        table.add_column(heading, justify="right")
    for key, label in (
        ("discrimination", "same-document discrimination, accuracy"),
        ("mrr_of_halves", "retrieval of the other half, MRR"),
        ("citation_mrr", "citation retrieval, MRR"),
        ("citation_recall_at_10", "citation retrieval, recall at 10"),
    ):
        table.add_row(label, *(f"{value:.4f}" for value in numbers[key]))
    console = Console(highlight=False, markup=False)
    console.print(table)
    console.print(
        f"citation MRR changed by {low:+.4f} to {high:+.4f} (95 % bootstrap over {len(links)} "
        f"citing PEPs); {numbers['minutes']:.1f} minutes"
    )
    console.print(f"numbers: {given.output / 'demo.json'}   plot: {given.output / 'run.png'}")
    return 0


def _settings(given: argparse.Namespace) -> Settings:
    """The settings of the demo's run. All others keep their defaults."""
    return Settings.model_validate(
        {
            "data": {
                "path": str(given.documents),
                "mask_pattern": NUMBERS,
                "held_out": 0.4,
                "cache": given.output / "cache",
            },
            "backbone": {"path": given.start or installed_start(), "max_tokens": 128},
            "objective": {"windows": given.windows},
            "optimisation": {"batch_size": 32, "max_steps": given.steps, "learning_rate": 5e-5},
            "run": {
                "output": given.output,
                "seed": given.seed,
                "checkpoint_every": 20,
                "evaluate_every": 1_000_000,
            },
        }
    )


def _measure(run: TrainingRun, links: dict[int, set[int]]) -> tuple[Floats, Floats]:
    """Reciprocal rank of the first cited document and recall at 10, of each citing document."""
    vectors = embed_texts(
        [run.cache.sentences(int(d)) for d in run.held],
        run.encoder,
        run.preparation.specials,
        run.processes,
        max_tokens=run.settings.backbone.max_tokens,
        windows=_WINDOWS,
    )
    scores = (vectors @ vectors.T).numpy().copy()
    np.fill_diagonal(scores, -np.inf)
    queries = sorted(links)
    found = rank(scores[queries], [dict.fromkeys(links[query], 1.0) for query in queries])
    return found.reciprocal_rank, found.recall


if __name__ == "__main__":
    sys.exit(main())
