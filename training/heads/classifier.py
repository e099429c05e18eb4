"""``docsplit-train head``: train a classifier from labelled documents."""

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from docsplit.bundles.format import load
from docsplit.corpora.fields import Fields, add_field_flags
from docsplit.corpora.files import TABLES
from docsplit.corpora.reading import read_examples
from docsplit.heads import examples
from docsplit.heads.examples import Examples
from docsplit.heads.learn import learn
from export.heads import add_head
from training.errors import HeadError
from training.heads.embedding import add_flags, embed, head_name


def main(arguments: Sequence[str]) -> int:
    """Train a classifier and put it into a bundle; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="docsplit-train head",
        description="Train a classifier on the vectors of a bundle, and put it into the bundle. "
        "Vectors and training are the same as in PUT /classifiers.",
        allow_abbrev=False,
    )
    parser.add_argument("--data", type=Path, required=True, help=f"{', '.join(TABLES)} file")
    parser.add_argument("--bundle", type=Path, required=True, help="folder of the bundle to change")
    parser.add_argument(
        "--name", type=head_name, required=True, help="lower-case letters, digits, - and _"
    )
    add_field_flags(parser, "text", "label")
    add_flags(parser)
    given = parser.parse_args(arguments)
    labelled = _labelled(*read_examples(given.data, Fields.given(given)))
    dimensions = load(given.bundle).manifest.dimensions
    try:
        examples.check_training(
            len(labelled.inputs),
            len(labelled.counts()),
            dimensions,
            labelled.multi_label,
        )
    except ValueError as error:
        raise HeadError(str(error)) from None
    vectors = embed(given.bundle, given.cache, labelled.inputs, given.precision)
    learnt = learn(vectors, labelled, math.inf)
    add_head(
        given.bundle,
        given.name,
        learnt.network,
        kind="classifier",
        labels=learnt.labels,
        report=learnt.report,
    )
    quality = "subset_accuracy" if labelled.multi_label else "accuracy"
    Console(highlight=False, markup=False).print(
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
    made = Examples(texts, lists, several)
    try:
        examples.check(lists, several)
        made.check_texts()
    except ValueError as error:
        raise HeadError(str(error)) from None
    return made
