"""Train heads on the vectors of a bundle as the service does, and put them into the bundle."""

import argparse
import asyncio
import math
import re
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pyarrow as pa
from lancedb import connect_async
from lancedb.index import FTS
from lancedb.table import AsyncTable
from rich.console import Console

from docsplit.bundles.format import load
from docsplit.bundles.manifest import HEAD_NAME
from docsplit.corpora.documents import Document, read_documents, read_links
from docsplit.corpora.fields import Fields, add_field_flags
from docsplit.corpora.files import TABLES
from docsplit.corpora.reading import links_among, read_examples
from docsplit.engines.choice import ArithmeticWish
from docsplit.heads import citation, examples, learn
from docsplit.heads.citation import CANDIDATES, Candidates, Inputs, sample
from docsplit.heads.examples import Examples
from docsplit.heads.pairs import Facts, Scores, of_pairs, signals
from docsplit.ranking.fusion import DEEP, hybrid
from docsplit.ranking.terms import SAMPLE, bag, cosines, count
from docsplit.ranking.words import INDEX, every
from docsplit.windowing.pooling import Vectors
from export.heads import add_head
from export.progress import Progress
from training.errors import HeadError
from training.evaluation.encoders import add_precision_flag, opened

# Embed documents as the service does. An interrupted run continues where it stopped.


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add ``--precision`` and ``--cache``."""
    add_precision_flag(parser)
    parser.add_argument(
        "--cache",
        type=Path,
        default=Path(".cache/evaluation"),
        help="folder of the vectors, shared with docsplit-evaluate; default: .cache/evaluation",
    )


def head_name(text: str) -> str:
    """A name that a bundle takes.

    Raises:
        ArgumentTypeError: it is none.
    """
    if re.search(HEAD_NAME, text) is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no name of a head; give up to 63 lower-case letters, digits, - and _, "
            "first a letter or digit"
        )
    return text


def embed(
    bundle: Path, cache: Path, texts: Sequence[str], precision: ArithmeticWish = "auto"
) -> Vectors:
    """Unit vectors of whole documents, float32 ``[texts, dimensions]``."""
    progress = Progress(Console(stderr=True))
    with opened(str(bundle), cache, precision=precision, progress=progress) as encoder:
        vectors: Vectors = encoder.features(texts)
        return vectors


class Searches:
    """Finds documents with vectors and words similar to those of a document.

    Args:
        table: the columns ``number`` and ``text``, with an index over the words of the texts.
        documents: with their texts and titles.
        vectors: unit vectors of the documents, float32 ``[documents, dimensions]``.
    """

    def __init__(self, table: AsyncTable, documents: Sequence[Document], vectors: Vectors) -> None:
        self._table = table
        self._texts = [one.text for one in documents]
        self._vectors = vectors
        unknown = np.zeros(0)
        self._facts = [
            Facts(one.title or "", bag(one.text), len(one.text), unknown) for one in documents
        ]
        self._frequencies = count(one.words for one in self._facts[:SAMPLE])

    async def candidates(
        self, number: int, cited: set[int], popularity: Mapping[int, int]
    ) -> Candidates:
        """The results of a hybrid search for a document.

        Args:
            number: number of the document.
            cited: documents that it cites.
            popularity: number of documents that cite each document.
        """
        query, about = self._vectors[number], self._facts[number]
        near = self._vectors @ query
        near[number] = -np.inf
        first = np.argsort(-near, kind="stable")[: min(CANDIDATES, len(near) - 1)].tolist()
        found = np.array(list(dict.fromkeys([*await self._by_words(number), *first])))
        bags = [self._facts[one].words for one in found]
        words = cosines(about.words, bags, self._frequencies.weights)
        dense = near[found].astype(np.float64)
        fused = hybrid(dense, words)
        best = np.argsort(-fused, kind="stable")[:CANDIDATES]
        scores = Scores(dense[best], words[best], fused[best])
        names = found[best].tolist()
        # its own link would reveal the answer
        others = np.array([popularity.get(one, 0) - (one in cited) for one in names])
        held = [self._facts[one] for one in names]
        return Candidates(
            query,
            self._vectors[names],
            signals(scores, others),
            np.array([one in cited for one in names], dtype=np.bool_),
            of_pairs(scores, about, held, others, self._frequencies.idf),
        )

    async def _by_words(self, number: int) -> list[int]:
        terms = self._frequencies.deep_terms(self._texts[number])
        search = self._table.query().nearest_to_text(terms, columns=["text"])
        search = search.where(f"number != {number}").select(["number", "_score"])
        found: list[int] = (await search.limit(DEEP).to_arrow())["number"].to_pylist()
        return found


def searches(
    documents: Sequence[Document], vectors: Vectors, links: Mapping[int, set[int]]
) -> list[Candidates]:
    """Searches for citing documents that find at least one cited and one other document.

    Args:
        documents: with their texts and titles.
        vectors: unit vectors of the documents, float32 ``[documents, dimensions]``.
        links: numbers of the documents that each citing document cites.
    """
    found = asyncio.run(_searches(documents, vectors, links))
    return [one for one in found if one.linked.any() and not one.linked.all()]


async def _searches(
    documents: Sequence[Document], vectors: Vectors, links: Mapping[int, set[int]]
) -> list[Candidates]:
    popularity = Counter(one for cited in links.values() for one in cited)
    numbers = pa.array(range(len(documents)), pa.int64())
    rows = pa.table({"number": numbers, "text": [" ".join(every(one.text)) for one in documents]})
    with tempfile.TemporaryDirectory() as folder:
        table = await (await connect_async(folder)).create_table("documents", rows)
        await table.create_index("text", config=FTS(**INDEX))
        search = Searches(table, documents, vectors)
        return [
            await search.candidates(number, links[number], popularity)
            for number in sample(sorted(links), vectors.shape[1])
        ]


def citation_main(arguments: Sequence[str]) -> int:
    """Train a citation head and put it into a bundle; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="docsplit-train citation",
        description="Train a citation head on the links of documents, and put it into a bundle. It "
        "serves every index that has no citation head. First mask identifiers in the texts that "
        'reveal a link, such as "PEP 484".',
        allow_abbrev=False,
    )
    parser.add_argument(
        "--documents", type=Path, required=True, help="a file or folder, as for docsplit-index"
    )
    parser.add_argument("--links", type=Path, help="table with the columns citing and cited")
    add_field_flags(parser, "text", "id", "title")
    parser.add_argument(
        "--inputs",
        choices=get_args(Inputs),
        default="features",
        help="a logistic regression on features of each pair, or a network on both vectors",
    )
    parser.add_argument("--bundle", type=Path, required=True, help="folder of the bundle to change")
    parser.add_argument("--name", type=head_name, default="citation", help="default: citation")
    add_flags(parser)
    given = parser.parse_args(arguments)
    held, links = _read(given.documents, given.links, Fields.given(given))
    started = time.monotonic()
    vectors = embed(given.bundle, given.cache, [one.text for one in held], given.precision)
    found = searches(held, vectors, links)
    total = sum(map(len, links.values()))
    try:
        learnt = citation.learn(found, total, len(links), math.inf, inputs=given.inputs)
    except ValueError as error:
        raise HeadError(str(error)) from None
    report = learnt.report | {"training_seconds": time.monotonic() - started}
    add_head(
        given.bundle,
        given.name,
        learnt.network,
        kind="citation",
        labels=learnt.labels,
        report=report,
    )
    Console(highlight=False, markup=False).print(
        f"{given.bundle}: citation head {given.name} of {report['links']} links; on held-out "
        f"documents its MRR is {report['mrr']:.3f}, that of the search without it "
        f"{report['hybrid_mrr']:.3f}",
        markup=False,
        soft_wrap=True,
    )
    return 0


def _read(
    documents: Path, links: Path | None, fields: Fields
) -> tuple[list[Document], dict[int, set[int]]]:
    """Documents and the numbers of cited ones; the first document of each id counts."""
    held: dict[str, Document] = {}
    pairs = [] if links is None else list(read_links(links))
    for document in read_documents(documents, fields, links=links):
        if document.text.strip() and document.id not in held:
            held[document.id] = document
            pairs += [(document.id, cited) for cited in document.links]
    # sorted by id as in the service, so the same documents are held out
    names = sorted(held)
    return [held[name] for name in names], links_among(names, pairs)[0]


def classifier_main(arguments: Sequence[str]) -> int:
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
    learnt = learn.learn(vectors, labelled, math.inf)
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
