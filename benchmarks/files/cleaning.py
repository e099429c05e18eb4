"""What do clean PDFs bring to retrieval: no headers, whole words, one column after the other?

    python -m benchmarks.files.cleaning docsplit/models/docsplit-minilm-l6-v3 --most 40

PDFs are made from PEPs, with a header and a page number on each page, words that a line's end
divides, and two columns that the program writes line by line. Each is read in three ways: "raw" is
PDFium's text as it is, "read" is what the reader returns, "true" is what the pages hold.

Three searches. "sentence, cosine" and "sentence, words": a sentence of the PEP finds a window with
most of its words, among the windows of all documents, by vectors and by tf-idf. "halves": the first
half of a document finds its second half. MRR, and the difference from "raw" (95 %, bootstrap over
the documents).
"""

import argparse
import io
import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pypdfium2 as pdfium
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from benchmarks.files.pdf import pdf
from benchmarks.files.source import Source, sources
from docsplit.extraction.content import Limits
from docsplit.extraction.pdf.lines import HYPHEN
from docsplit.extraction.readers.pdf import read
from docsplit.windowing.sentences import sentence_starts
from studies.section_windows import CHARACTERS, QUERIES, Encoder

# of a sentence's words, the share that a window must have to be right
SHARE = 0.8
_WORD = re.compile(r"\w{4,}")


def main() -> None:
    """Make, read, search and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--most", type=int, default=40, help="documents")
    given = parser.parse_args()
    held = [one for one in sources(given.most) if len(one.text) > 3000]
    encoder = Encoder(given.bundle)
    queries = [sentences(one, seed) for seed, one in enumerate(held)]
    draw = np.random.default_rng(0)
    picks = draw.integers(0, len(held), (2000, len(held)))
    for columns in (1, 2):
        files = [pdf(one, columns=columns, across=columns > 1) for one in held]
        texts = {
            "raw": [raw(content) for content, _ in files],
            "read": [read(io.BytesIO(content), Limits()).text for content, _ in files],
            "true": ["\n".join(pages) for _, pages in files],
        }
        found = {name: figures(encoder, own, queries) for name, own in texts.items()}
        title = f"{len(held)} documents, columns: {columns}"
        table = Table("search", "raw", "read", "difference", "true", title=title)
        for kind, first in found["raw"].items():
            change = np.array(found["read"][kind]) - np.array(first)
            low, high = np.percentile(change[picks].mean(axis=1), [2.5, 97.5])
            means = {name: f"{np.mean(own[kind]):.3f}" for name, own in found.items()}
            gain = f"{change.mean():+.3f} ({low:+.3f} to {high:+.3f})"
            table.add_row(kind, means["raw"], means["read"], gain, means["true"])
        Console(width=100).print(table)


def raw(content: bytes) -> str:
    """The text of all pages as PDFium gives it."""
    pages = []
    for page in pdfium.PdfDocument(content):
        text = page.get_textpage().get_text_range()
        pages.append(text.replace(HYPHEN, "-\n").replace("\r\n", "\n"))
    return "\n".join(pages)


def sentences(source: Source, seed: int) -> list[str]:
    """Some sentences of a document."""
    starts = [0, *sentence_starts(source.text), len(source.text)]
    found = [source.text[a:b] for a, b in pairwise(starts) if b - a in CHARACTERS]
    order = np.random.default_rng(seed).permutation(len(found))
    return [found[place] for place in order[:QUERIES]]


def figures(
    encoder: Encoder, texts: Sequence[str], queries: Sequence[Sequence[str]]
) -> dict[str, list[float]]:
    """The mean reciprocal rank of each document's queries, by search."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    cut = [encoder.windows(text, []) for text in texts]
    owners = np.repeat(np.arange(len(cut)), [len(own) for own in cut])
    spans = [(text[w.start : w.end]) for text, own in zip(texts, cut, strict=True) for w in own]
    words = [set(_WORD.findall(span.lower())) for span in spans]
    vectors = encoder.vectors([[window] for own in cut for window in own])
    tfidf = TfidfVectorizer()
    counted = tfidf.fit_transform(spans)
    found: dict[str, list[float]] = {"sentence, cosine": [], "sentence, words": []}
    for number, asked in enumerate(queries):
        by_vectors = encoder.vectors([encoder.windows(one, []) for one in asked]) @ vectors.T
        by_words = (tfidf.transform(asked) @ counted.T).toarray()
        places = [right(one, words, owners == number) for one in asked]
        for name, scores in (("cosine", by_vectors), ("words", by_words)):
            ranks = [
                1 + int((own > own[place].max()).sum())
                for own, place in zip(scores, places, strict=True)
            ]
            found[f"sentence, {name}"].append(float(np.mean(1 / np.array(ranks))))
    middles = [len(text) // 2 for text in texts]
    sides = [
        [text[:middle] for text, middle in zip(texts, middles, strict=True)],
        [text[middle:] for text, middle in zip(texts, middles, strict=True)],
    ]
    first, second = (encoder.vectors([encoder.windows(one, []) for one in own]) for own in sides)
    scores = first @ second.T
    ranked = 1 + (scores > np.diag(scores)[:, None]).sum(axis=1)
    found["halves"] = [float(one) for one in 1 / ranked]
    return found


def right(sentence: str, words: Sequence[set[str]], own: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The windows of the document that have most words of a sentence, or the most of all."""
    asked = set(_WORD.findall(sentence.lower()))
    shares = np.array([len(asked & held) / max(1, len(asked)) for held in words]) * own
    return np.asarray(shares >= min(SHARE, float(shares.max())))


if __name__ == "__main__":
    main()
