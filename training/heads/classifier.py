"""``docsplit-train head``: labelled documents in, a classifier in the bundle out."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from bundles.format import load
from export.heads import add_head
from heads import bounds, examples
from heads.examples import Examples
from heads.learn import learn
from training.errors import HeadError
from training.heads.embedding import add_cache_flag, embed
from training.heads.examples import read_examples


def main(arguments: Sequence[str]) -> int:
    """Train a classifier and put it into a bundle; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="docsplit-train head",
        description="Train a classifier on the vectors of a bundle, and put it into the bundle. "
        "The vectors and the training are those of PUT /classifiers.",
        allow_abbrev=False,
    )
    parser.add_argument("--data", type=Path, required=True, help=".csv, .jsonl or .parquet file")
    parser.add_argument("--bundle", type=Path, required=True, help="folder; it is changed")
    parser.add_argument("--name", required=True, help="lower-case letters, digits, - and _")
    parser.add_argument("--text-field", default="text", help="default: text")
    parser.add_argument(
        "--label-field", default="label", help="a string, or a list of several; default: label"
    )
    add_cache_flag(parser)
    given = parser.parse_args(arguments)
    labelled = _labelled(*read_examples(given.data, given.text_field, given.label_field))
    dimensions = load(given.bundle).manifest.dimensions
    try:
        bounds.check_training(
            len(labelled.inputs),
            len(labelled.counts()),
            dimensions,
            labelled.multi_label,
        )
    except ValueError as error:
        raise HeadError(str(error)) from None
    learnt = learn(embed(given.bundle, given.cache, labelled.inputs), labelled, math.inf)
    add_head(
        given.bundle,
        given.name,
        learnt.network,
        kind="classifier",
        labels=learnt.labels,
        report=learnt.report,
    )
    quality = "subset_accuracy" if labelled.multi_label else "accuracy"
    Console(highlight=False).print(
        f"{given.bundle}: classifier {given.name} of {len(labelled.inputs)} examples, "
        f"{len(learnt.labels)} labels; cross-validated {quality.replace('_', ' ')} "
        f"{learnt.report[quality]:.3f}, macro-F1 {learnt.report['macro_f1']:.3f}",
        markup=False,
        soft_wrap=True,
    )
    return 0


def _labelled(texts: list[str], labels: list[Any]) -> Examples:
    several = isinstance(labels[0], list)
    lists = labels if several else [[label] for label in labels]
    if not all(isinstance(given, list) for given in lists):
        raise HeadError("labels: a row has one label and another has a list: give one kind")
    try:
        examples.check(lists, several)
    except ValueError as error:
        raise HeadError(str(error)) from None
    return Examples(texts, lists, several)
