"""Do windows that prefer to end where sections end find more?

    python -m studies.section_windows docsplit/models/docsplit-minilm-l6-v3 \\
        examples/peps/documents.jsonl.gz

The texts are reStructuredText; their headings begin the sections. A boundary at a section's start
is an anchor (windowing.windows) before any other boundary in reach: its hash is made the lowest.

Three searches by cosine. "sentence": a sentence finds the window that it stands in, among the
windows of all documents. "heading": the document's title with a heading finds a window with the
first characters of that section. "halves": the first half of a document finds its second half. MRR,
and the difference from the plain windows (95 %, bootstrap over the documents).
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from unittest import mock

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from rich.table import Table

from docsplit.bundles import format as bundle
from docsplit.bundles.manifest import TOKENIZER
from docsplit.corpora.tables import rows
from docsplit.engines.choice import choose, detect
from docsplit.extraction.sources import content_of
from docsplit.windowing import windows
from docsplit.windowing.documents import Window, document_vectors, split
from docsplit.windowing.pooling import Vectors
from docsplit.windowing.sentences import sentence_starts
from docsplit.windowing.tokens import DocumentTokenizer
from docsplit.windowing.windows import Hashes, Ids, Positions
from export.checks.engines import named, open_chosen

# headings that a document must have
LEAST = 8
# sentences and headings of each document, and characters of a sentence and of a section's beginning
QUERIES = 4
CHARACTERS = range(60, 400)
BEGINNING = 300
_TOP = np.uint64(1 << 63)
_ONE = np.uint64(1)


@dataclass(frozen=True, slots=True)
class Document:
    """A text with the places of its sections and the queries that they give.

    Attributes:
        queries: of each kind: texts, and the characters that a window must have to be right.
    """

    text: str
    sections: list[int]
    queries: dict[str, list[tuple[str, int, int]]]


def main() -> None:
    """Cut, encode, search and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("bundle", type=Path)
    parser.add_argument("documents", type=Path)
    parser.add_argument("--most", type=int, default=200, help="documents")
    given = parser.parse_args()
    documents = read(given.documents, given.most)
    encoder = Encoder(given.bundle)
    plain, preferred = (figures(encoder, documents, prefer=prefer) for prefer in (False, True))
    table = Table("search", "plain", "sections", "difference", title=f"{len(documents)} documents")
    draw = np.random.default_rng(0)
    picks = draw.integers(0, len(documents), (2000, len(documents)))
    for kind, own in plain.items():
        change = np.array(preferred[kind]) - np.array(own)
        low, high = np.percentile(change[picks].mean(axis=1), [2.5, 97.5])
        cells = f"{np.mean(own):.3f}", f"{np.mean(preferred[kind]):.3f}"
        table.add_row(kind, *cells, f"{change.mean():+.3f} ({low:+.3f} to {high:+.3f})")
    Console().print(table)


def read(path: Path, most: int) -> list[Document]:
    """The documents that have headings, with queries."""
    found: list[Document] = []
    draw = np.random.default_rng(0)
    for _, row in rows(path, ["text"], ["title"]):
        text = row["text"]
        headings = [one for one in content_of(".rst", text).headings if one.start > 0]
        if len(headings) < LEAST or len(found) == most:
            continue
        starts = [0, *sentence_starts(text), len(text)]
        spans = [(first, last) for first, last in pairwise(starts) if last - first in CHARACTERS]
        sections = [one.start for one in headings]
        sentences = [spans[i] for i in draw.permutation(len(spans))[:QUERIES]]
        chosen = [headings[i] for i in draw.permutation(len(headings))[:QUERIES]]
        queries = {
            "sentence": [(text[first:last], first, last) for first, last in sentences],
            "heading": [
                (f"{row['title']}: {one.title}", one.start, one.start + BEGINNING) for one in chosen
            ],
        }
        found.append(Document(text, sections, queries))
    return found


class Encoder:
    """Cuts and encodes with a bundle, in the precision that the service chooses."""

    def __init__(self, folder: Path) -> None:
        opened = bundle.load(folder)
        manifest = opened.manifest
        processor = detect()
        choice = choose("auto", "auto", processor, manifest.precisions)
        _, self._run = open_chosen(choice, opened.graph(choice.graph), threads=processor.cores)
        self._tokenizer = DocumentTokenizer(opened.path(TOKENIZER), manifest.max_tokens)
        self._pad = manifest.pad_token_id

    def windows(self, text: str, sections: Sequence[int]) -> list[Window]:
        """The windows of a text, which prefer to end before the sections."""
        tokens = self._tokenizer.encode(text)
        places = np.searchsorted(tokens.starts, np.array(sections, dtype=np.int64))
        plain = windows._sentence_hashes

        def hashes(ids: Ids, starts: Positions) -> Hashes:
            found = plain(ids, starts) >> _ONE
            return np.where(np.isin(starts, places), found, found | _TOP)

        with mock.patch.object(windows, "_sentence_hashes", hashes if len(sections) else plain):
            return split(self._tokenizer, text, tokens)

    def vectors(self, documents: Sequence[Sequence[Window]]) -> Vectors:
        """Unit vectors of documents, or of single windows."""
        return document_vectors(
            documents, lambda ids, mask: self._run(named(ids, mask)), pad_token_id=self._pad
        )


def figures(
    encoder: Encoder, documents: Sequence[Document], *, prefer: bool
) -> dict[str, list[float]]:
    """The mean reciprocal rank of each document's queries, by kind."""
    cut = [encoder.windows(one.text, one.sections if prefer else []) for one in track(documents)]
    owners = np.repeat(np.arange(len(cut)), [len(own) for own in cut])
    spans = np.array([(window.start, window.end) for own in cut for window in own])
    held = encoder.vectors([[window] for own in cut for window in own])
    found: dict[str, list[float]] = {}
    for kind in documents[0].queries:
        for number, one in enumerate(documents):
            texts = [encoder.windows(query, []) for query, _, _ in one.queries[kind]]
            scores = encoder.vectors(texts) @ held.T
            right = [
                (owners == number) & (spans[:, 0] < last) & (spans[:, 1] > first)
                for _, first, last in one.queries[kind]
            ]
            ranks = [
                1 + int((own > own[places].max()).sum())
                for own, places in zip(scores, right, strict=True)
            ]
            found.setdefault(kind, []).append(float(np.mean(1 / np.array(ranks))))
    found["halves"] = halves(encoder, documents, prefer=prefer)
    sections = [np.array([0, *one.sections]) for one in documents]
    found["windows at sections"] = [
        float(np.mean(np.isin([window.start for window in own], places)))
        for own, places in zip(cut, sections, strict=True)
    ]
    return found


def halves(encoder: Encoder, documents: Sequence[Document], *, prefer: bool) -> list[float]:
    """The reciprocal rank of each document's second half for its first."""
    vectors = []
    for side in range(2):
        cut = []
        for one in documents:
            middle = len(one.text) // 2
            text = one.text[middle:] if side else one.text[:middle]
            places = [start - side * middle for start in one.sections]
            inside = [start for start in places if 0 < start < len(text)]
            cut.append(encoder.windows(text, inside if prefer else []))
        vectors.append(encoder.vectors(cut))
    scores: NDArray[np.float32] = vectors[0] @ vectors[1].T
    ranks = 1 + (scores > np.diag(scores)[:, None]).sum(axis=1)
    return [float(one) for one in 1 / ranks]


if __name__ == "__main__":
    main()
