"""Does a classifier know the texts of a label that it has not learnt?

    python -m benchmarks.learning.none --data bbc.parquet

The file has the columns ``text`` and ``label``. One label after the other is held out: a classifier
learns from two thirds of the documents of each other label, and sees the remaining documents and
those of the held-out label. The command prints, as means over the held-out labels, the AUROC of
some scores for telling both kinds apart, and the shares of both that the answer ``none`` gets.
"""

import argparse
import math
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from sklearn.metrics import roc_auc_score

from docsplit.encoder import Encoder
from docsplit.heads import training
from docsplit.heads.network import Floats, Vectors, contrast


def main() -> None:
    """Embed, hold labels out, and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--documents", type=int, default=600, help="a sample of so many")
    parser.add_argument("--characters", type=int, default=1500, help="of each text")
    parser.add_argument("--every", type=int, default=1, help="take every so many-th label")
    parser.add_argument("--held-out", type=int, default=4, help="labels to hold out, at most")
    parser.add_argument("--vectors", type=Path, help="keep the vectors in this .npz file")
    given = parser.parse_args()
    if given.vectors is not None and given.vectors.exists():
        held = np.load(given.vectors)
        vectors, labels = held["v"], held["y"]
    else:
        vectors, labels = embedded(given.data, given.documents, given.characters, given.every)
        if given.vectors is not None:
            np.savez(given.vectors, v=vectors, y=labels)
    names = sorted(set(labels.tolist()))
    out = names[:: max(1, len(names) // given.held_out)][: given.held_out]
    found = [measured(vectors, labels, name) for name in out]
    table = Table("", "mean", "lowest", title=f"{len(labels)} documents, {len(names)} labels")
    for key in found[0]:
        column = [one[key] for one in found]
        table.add_row(key, f"{np.mean(column):.3f}", f"{min(column):.3f}")
    Console().print(table)


def embedded(
    data: Path, documents: int, characters: int, every: int
) -> tuple[Vectors, NDArray[np.str_]]:
    """Vectors and labels of a sample."""
    rows = pq.read_table(data, columns=["text", "label"]).to_pylist()
    kept = set(sorted({row["label"] for row in rows})[::every])
    # a text without words has no vector
    rows = [row for row in rows if row["text"].strip() and row["label"] in kept]
    chosen = np.random.default_rng(0).permutation(len(rows))[:documents]
    vectors = Encoder().embed([rows[i]["text"][:characters] for i in chosen])
    return vectors, np.array([rows[i]["label"] for i in chosen])


def measured(vectors: Vectors, labels: NDArray[np.str_], out: str) -> dict[str, float]:
    """The figures for one held-out label."""
    draw = np.random.default_rng(0)
    others = [name for name in sorted(set(labels.tolist())) if name != out]
    known: list[int] = []
    numbers: list[int] = []
    seen: list[int] = []
    for number, name in enumerate(others):
        places = draw.permutation(np.flatnonzero(labels == name)).tolist()
        share = max(2, len(places) * 2 // 3)
        known += places[:share]
        numbers += [number] * len(places[:share])
        seen += places[share:]
    unseen = np.flatnonzero(labels == out)
    trained = training.train(vectors[known], np.array(numbers), math.inf)
    both = vectors[np.concatenate((seen, unseen)).astype(np.int64)]
    strange = np.arange(len(both)) >= len(seen)
    logits = trained.network.logits(both)
    middles = np.stack([vectors[known][np.array(numbers) == n].mean(0) for n in range(len(others))])
    middles /= np.linalg.norm(middles, axis=1, keepdims=True)
    scores: dict[str, Floats] = {
        "highest probability": trained.network.probabilities(both).max(axis=1),
        "highest logit less the mean": contrast(logits),
        "nearest middle of a label": (both @ middles.T).max(axis=1).astype(np.float64),
        "nearest example": (both @ vectors[known].T).max(axis=1).astype(np.float64),
    }
    none = contrast(logits) < trained.none_below
    return {
        **{f"AUROC: {key}": float(roc_auc_score(~strange, own)) for key, own in scores.items()},
        "none: documents of the learnt labels": float(none[~strange].mean()),
        "none: documents of the held-out label": float(none[strange].mean()),
    }


if __name__ == "__main__":
    main()
