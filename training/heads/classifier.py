"""``docsplit-train head``: labelled documents in, a classifier in the bundle out."""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

from corpora.fields import Fields, add_field_flags
from corpora.files import TABLES
from corpora.reading import read_examples
from training.errors import HeadError
from training.heads.bundling import into_bundle
from training.heads.served import Client, served

_POLL_SECONDS = 0.5


def main(arguments: Sequence[str]) -> int:
    """Train a classifier and put it into a bundle; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="docsplit-train head",
        description="Train a classifier on the vectors of a bundle, and put it into the bundle. "
        "The work is done by a service of its own over the bundle, so the vectors and the "
        "training are those of PUT /classifiers.",
        allow_abbrev=False,
    )
    parser.add_argument("--data", type=Path, required=True, help=f"{', '.join(TABLES)} file")
    parser.add_argument("--bundle", type=Path, required=True, help="folder; it is changed")
    parser.add_argument("--name", required=True, help="lower-case letters, digits, - and _")
    add_field_flags(parser, "text", "label")
    given = parser.parse_args(arguments)
    texts, labels = read_examples(given.data, Fields.given(given))
    with (
        tempfile.TemporaryDirectory() as work,
        served(given.bundle, Path(work, "index")) as client,
    ):
        report = _train(client, texts, labels)
        archive = client.read("GET", "/classifiers/head/network")
    outputs = report.pop("outputs")
    into_bundle(given.bundle, given.name, "classifier", archive, outputs, report)
    quality = "subset_accuracy" if isinstance(labels[0], list) else "accuracy"
    Console(highlight=False).print(
        f"{given.bundle}: classifier {given.name} of {len(texts)} examples, {len(outputs)} labels; "
        f"cross-validated {quality.replace('_', ' ')} {report[quality]:.3f}, macro-F1 "
        f"{report['macro_f1']:.3f}",
        markup=False,
        soft_wrap=True,
    )
    return 0


def _train(client: Client, texts: list[str], labels: list[Any]) -> dict[str, Any]:
    body = {
        "inputs": texts,
        "labels": labels,
        "multi_label": isinstance(labels[0], list),
        "background": True,
    }
    answer = client.json("PUT", "/classifiers/head", body)
    with Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task("embedding", total=len(texts))
        while (training := answer.get("training")) is not None:
            if training["state"] != "running":
                raise HeadError(training.get("error") or "the training was lost")
            bar.update(task, completed=training["done"], description=training["stage"])
            time.sleep(_POLL_SECONDS)
            answer = client.json("GET", "/classifiers/head")
    known = ("name", "revision", "current", "bundled", "multi_label", "training")
    return {key: value for key, value in answer.items() if key not in known}
