"""Classifiers from few labels, using only the REST interface.

    python -m benchmarks.learning.few_shot --data bbc.parquet

The file has the columns ``text``, ``label`` and ``split`` (``train``, ``test``). The command
indexes documents of the train split. Each draw labels a few documents of each label by their ids.
It trains once with only these labels and once with the index as ``unlabelled``. The classifier then
labels documents of the test split. The command reports accuracy and macro-F1 over the draws (mean,
standard deviation, lowest), and the training time with cross-validation as the service states it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow.parquet as pq
from rich.console import Console
from rich.progress import track
from rich.table import Table
from sklearn.metrics import accuracy_score, f1_score

from benchmarks.rig import server
from benchmarks.rig.server import call

GROUP = 25


def main() -> None:
    """Index, draw, train, classify and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--labels", type=int, default=5, help="labelled documents of each class")
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--train", type=int, default=500, help="maximum documents in the index")
    parser.add_argument("--test", type=int, default=500, help="maximum documents to classify")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    rows = pq.read_table(given.data, columns=["text", "label", "split"]).to_pylist()
    # the service refuses an empty text
    rows = [row for row in rows if row["text"].strip()]
    draw = np.random.default_rng(0)
    splits = {
        name: [rows[i] for i in draw.permutation(len(rows)) if rows[i]["split"] == name][:most]
        for name, most in (("train", given.train), ("test", given.test))
    }
    with tempfile.TemporaryDirectory() as work:
        flags = (f"--index-path={work}/index", "--cache-bytes=1000000000", "--request-timeout=590")
        with (
            server.started(*flags) as service,
            httpx.Client(base_url=service.url, timeout=600) as client,
        ):
            index(client, splits["train"])
            found = measure(client, splits["train"], splits["test"], given.labels, given.draws)
    report(found, given.labels)
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


def index(client: httpx.Client, rows: list[dict[str, Any]]) -> None:
    """Put the texts into an index, with their numbers as ids."""
    call(client, "PUT", "/indexes/train", {})
    for first in track(range(0, len(rows), GROUP), "indexing"):
        part = rows[first : first + GROUP]
        documents = [{"id": str(first + i), "text": row["text"]} for i, row in enumerate(part)]
        call(client, "POST", "/indexes/train/documents", {"documents": documents})


def measure(
    client: httpx.Client,
    train: list[dict[str, Any]],
    test: list[dict[str, Any]],
    labels: int,
    draws: int,
) -> dict[str, dict[str, list[float]]]:
    """Accuracy, macro-F1 and training seconds of each draw, for both ways."""
    truth = [row["label"] for row in test]
    classes = sorted(set(truth))
    found: dict[str, dict[str, list[float]]] = {}
    for seed in track(range(draws), "draws"):
        draw = np.random.default_rng(seed)
        chosen = [
            int(i)
            for label in classes
            for i in draw.choice(
                [i for i, row in enumerate(train) if row["label"] == label], labels, replace=False
            )
        ]
        body = {
            "index": "train",
            "ids": [str(i) for i in chosen],
            "labels": [train[i]["label"] for i in chosen],
        }
        for name, further in (("only labels", {}), ("and unlabelled", {"unlabelled": "train"})):
            made = call(client, "PUT", "/classifiers/few", body | further)
            guessed = []
            for first in range(0, len(test), GROUP):
                texts = [row["text"] for row in test[first : first + GROUP]]
                body_ = {"inputs": texts, "classifier": "few", "top_k": 1}
                guessed += [best["label"] for [best] in call(client, "POST", "/classify", body_)]
            figures = found.setdefault(name, {"accuracy": [], "macro_f1": [], "seconds": []})
            figures["accuracy"].append(float(accuracy_score(truth, guessed)))
            figures["macro_f1"].append(float(f1_score(truth, guessed, average="macro")))
            figures["seconds"].append(made["training_seconds"])
    return found


def report(found: dict[str, dict[str, list[float]]], labels: int) -> None:
    """One row for each way to train."""
    table = Table(title=f"{labels} labels a class")
    for heading in ("", "accuracy", "sd", "lowest", "macro-F1", "training s, median"):
        table.add_column(heading, justify="right" if heading else "left")
    for name, figures in found.items():
        accuracy = figures["accuracy"]
        table.add_row(
            name,
            f"{statistics.mean(accuracy):.4f}",
            f"{statistics.pstdev(accuracy):.4f}",
            f"{min(accuracy):.4f}",
            f"{statistics.mean(figures['macro_f1']):.4f}",
            f"{statistics.median(figures['seconds']):.2f}",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
