"""How files become labelled and judged sets."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from export.corpora.sets import Judged, Labelled
from export.corpora.tables import is_table, rows, stem
from export.errors import DataError

_WORD = re.compile(r"\w")


@dataclass(frozen=True)
class Fields:
    """Names of columns, and how much to read.

    Attributes:
        text: column of the text.
        label: column of the class.
        limit: documents of a set, at most; of a labelled one, of each of its parts.
    """

    text: str = "text"
    label: str = "label"
    limit: int | None = None


def read_labelled(path: Path, name: str, fields: Fields) -> Labelled:
    """Labelled documents. Without a column ``split``, a fifth by their digests is the test part.

    Raises:
        DataError: not readable, one part empty, or a single class.
    """
    train: list[tuple[str, str]] = []
    test: list[tuple[str, str]] = []
    left_out = 0
    for row in rows(path, [fields.text, fields.label], ["split"]):
        text, label = row[fields.text], row[fields.label]
        if not holds_words(text) or label in (None, ""):
            left_out += 1
            continue
        part = row.get("split") or ("test" if _digest(text) % 5 == 0 else "train")
        if part in ("train", "test"):
            (train if part == "train" else test).append((text, str(label)))
        else:
            left_out += 1
    if not train or not test:
        raise DataError(
            f"{path}: {len(train)} documents to train on and {len(test)} to test on; the column "
            "split must say train or test, or be left out"
        )
    classes = sorted({label for _, label in train})
    unknown = sorted({label for _, label in test} - set(classes))
    if len(classes) < 2:
        raise DataError(f"{path}: all documents to train on have the label {classes[0]!r}")
    if unknown:
        raise DataError(f"{path}: only the test part has the label {unknown[0]!r}")
    number = {label: i for i, label in enumerate(classes)}
    parts = []
    for part_rows in (train, test):
        labels = np.asarray([number[label] for _, label in part_rows], dtype=np.int64)
        kept = _stratified(labels, fields.limit)
        parts.append(([part_rows[i][0] for i in kept], labels[kept]))
    (train_texts, train_labels), (test_texts, test_labels) = parts
    return Labelled(name, train_texts, train_labels, test_texts, test_labels, classes, left_out)


def read_judged(corpus: Path, queries: Path, qrels: Path, name: str, fields: Fields) -> Judged:
    """A corpus, queries and judgements, as BEIR has them or with the columns of evaluation.md.

    Judgements with a column ``split`` count where it says ``test``. A limited corpus keeps every
    document that is an answer.

    Raises:
        DataError: not readable, or no query has an answer in the corpus.
    """
    texts: dict[str, str] = {}
    left_out = 0
    for row in rows(corpus, [fields.text], ["id", "_id", "title"]):
        text = titled(row.get("title"), row[fields.text])
        if holds_words(text):
            texts[_id(row, corpus)] = text
        else:
            left_out += 1
    asked = {_id(row, queries): str(row["text"]) for row in rows(queries, ["text"], ["id", "_id"])}
    grades: dict[str, dict[str, float]] = {}
    for row in rows(qrels, ["score"], ["query_id", "query-id", "doc_id", "corpus-id", "split"]):
        query = row.get("query_id", row.get("query-id"))
        document = row.get("doc_id", row.get("corpus-id"))
        if query is None or document is None:
            raise DataError(f"{qrels}: expected the columns query_id, doc_id and score")
        if row.get("split") not in (None, "test") or float(row["score"]) <= 0:
            continue
        if str(query) in asked and str(document) in texts:
            grades.setdefault(str(query), {})[str(document)] = float(row["score"])
        else:
            left_out += 1
    if not grades:
        raise DataError(f"{qrels}: no judgement of a query and a document that are there")
    answers = {document for judged in grades.values() for document in judged}
    names = list(texts)
    if fields.limit is not None:
        others = [name for name in names if name not in answers]
        room = max(0, fields.limit - len(answers))
        kept = answers | {others[i] for i in drawn(len(others), room)}
        names = [name for name in names if name in kept]
    number = {name: i for i, name in enumerate(names)}
    relevant = [{number[d]: grade for d, grade in judged.items()} for judged in grades.values()]
    return Judged(
        name, [texts[name] for name in names], [asked[q] for q in grades], relevant, left_out
    )


def judged_files(folder: Path) -> tuple[Path, Path, Path] | None:
    """Corpus, queries and judgements of a folder; None where it is no judged set."""
    corpus, queries = named(folder, "corpus"), named(folder, "queries")
    qrels = named(folder, "qrels") or named(folder / "qrels", "test")
    return (corpus, queries, qrels) if corpus and queries and qrels else None


def named(folder: Path, name: str) -> Path | None:
    """The table called ``name`` in a folder, whatever its type."""
    if not folder.is_dir():
        return None
    return next((p for p in sorted(folder.iterdir()) if is_table(p) and stem(p) == name), None)


def _id(row: dict[str, object], path: Path) -> str:
    given = row.get("id", row.get("_id"))
    if given is None:
        raise DataError(f"{path}: no column id (or _id)")
    return str(given)


def titled(title: object, text: object) -> str:
    """A document's text after its title, where there is one."""
    body = text if isinstance(text, str) else ""
    return f"{title}\n\n{body}" if isinstance(title, str) and title.strip() else body


def holds_words(text: object) -> bool:
    """Whether a cell is text with a letter or digit in it."""
    return isinstance(text, str) and _WORD.search(text) is not None


def _digest(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:8])


def drawn(count: int, limit: int | None) -> Sequence[int]:
    """Numbers of at most ``limit`` of ``count`` documents, ascending; the same draw every time."""
    if limit is None or count <= limit:
        return range(count)
    chosen = np.random.default_rng(0).choice(count, size=limit, replace=False)
    return sorted(int(i) for i in chosen)


def _stratified(labels: npt.NDArray[np.int64], limit: int | None) -> npt.NDArray[np.int64]:
    """Numbers of at most ``limit`` rows, each class in its proportion as nearly as can be."""
    order = np.random.default_rng(0).permutation(len(labels))
    if limit is None or len(labels) <= limit:
        return np.arange(len(labels))
    # A row's place within its class, as a share of the class, spreads classes evenly.
    place = np.empty(len(labels))
    for label in np.unique(labels):
        own = order[labels[order] == label]
        place[own] = (np.arange(len(own)) + 0.5) / len(own)
    return np.sort(np.argsort(place, kind="stable")[:limit])
