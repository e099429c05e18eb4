"""Reads tables as labelled, linked, judged or plain sets."""

import hashlib
import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from docsplit.corpora.documents import read_links
from docsplit.corpora.fields import DataError, Fields
from docsplit.corpora.sets import Documents, Judged, Labelled, Linked
from docsplit.corpora.tables import Row, rows

_WORD = re.compile(r"\w")
_PAIR = ["query_id", "query-id", "doc_id", "corpus-id", "split"]


def read_labelled(path: Path, name: str, fields: Fields) -> Labelled:
    """Labelled documents. Without a column ``split``, a fifth by digest is the test part, except
    documents whose label the training part would lack.

    Raises:
        DataError: the file is not readable, a label is a list or object, a part is empty, or there
            is only one class.
    """
    train: list[tuple[str, str]] = []
    test: list[tuple[str, str]] = []
    left_out = 0
    stated = False
    for where, row in rows(path, [fields.text, fields.label], ["split"]):
        text, label = row[fields.text], row[fields.label]
        if isinstance(label, list | dict):
            kind = "a list" if isinstance(label, list) else "an object"
            raise DataError(f"{where}: {fields.label} is {kind}; a set has one label for each text")
        if not _holds_words(text) or _is_empty(label):
            left_out += 1
            continue
        stated = stated or bool(row.get("split"))
        part = row.get("split") or ("test" if _digest(text) % 5 == 0 else "train")
        if part in ("train", "test"):
            (train if part == "train" else test).append((text, str(label).strip()))
        else:
            left_out += 1
    if not stated:
        known = {label for _, label in train}
        train += [one for one in test if one[1] not in known]
        test = [one for one in test if one[1] in known]
    if not train or not test:
        remedy = (
            "the column split must say train or test, or be left out"
            if stated
            else "give each label several different texts, or a column split with train and test"
        )
        raise DataError(
            f"{path}: {len(train)} documents to train on and {len(test)} to test on; {remedy}"
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


def read_examples(path: Path, fields: Fields) -> tuple[list[str], list[Any]]:
    """Texts and labels for training a head; a column of lists gives several labels a text.

    Raises:
        DataError: the file is not readable or has no rows, a row has no text or label, or some rows
            have one label and others a list.
    """
    texts: list[str] = []
    labels: list[Any] = []
    for where, row in rows(path, [fields.text, fields.label], []):
        text, label = row[fields.text], row[fields.label]
        if not isinstance(text, str) or not text.strip() or _is_empty(label):
            raise DataError(f"{where}: a row needs its {fields.text} and its {fields.label}")
        if isinstance(label, list):
            if any(map(_is_empty, label)):
                raise DataError(f"{where}: a label in the list of {fields.label} is empty")
            label = [str(one).strip() for one in label]
        else:
            label = str(label).strip()
        if labels and isinstance(label, list) != isinstance(labels[0], list):
            raise DataError(
                f"{where}: some rows have one {fields.label} and others a list; use one form"
            )
        texts.append(text)
        labels.append(label)
    if not texts:
        raise DataError(f"{path}: holds no rows")
    return texts, labels


def read_linked(
    documents: Path, citations: Path, name: str, fields: Fields, mask: str | None = None
) -> Linked:
    """Documents with ids (each text after its title, if there is one) and their links.

    Matches of ``mask`` are deleted from every text.

    Raises:
        DataError: a file is not readable, or there are no links among the documents.
    """
    texts, left_out = _texts(documents, fields, mask)
    names = list(texts)
    names = [names[i] for i in _drawn(len(names), fields.limit)]
    links, outside = links_among(names, read_links(citations))
    if not links:
        raise DataError(f"{citations}: no pair of ids that are both in {documents}")
    frozen = {citing: frozenset(cited) for citing, cited in links.items()}
    return Linked(name, [texts[name] for name in names], frozen, left_out + outside)


def links_among(
    names: Sequence[str], links: Iterable[tuple[str, str]]
) -> tuple[dict[int, set[int]], int]:
    """For each citing document the numbers of cited ones, and the number of links to other sets.

    Links of a document to itself do not count.
    """
    number = {name: i for i, name in enumerate(names)}
    among: dict[int, set[int]] = {}
    outside = 0
    for citing, cited in links:
        if citing not in number or cited not in number:
            outside += 1
        elif citing != cited:
            among.setdefault(number[citing], set()).add(number[cited])
    return among, outside


def read_judged(corpus: Path, queries: Path, qrels: Path, name: str, fields: Fields) -> Judged:
    """A corpus, queries and judgements, in BEIR's form or with the columns of evaluation.md.

    If judgements have a column ``split``, only those with ``test`` count. A limited corpus keeps
    every document that is an answer. A query that is a document of the corpus, with its id and its
    text, does not find itself (BEIR's ``ignore_identical_ids``).

    Raises:
        DataError: a file is not readable, or no query has an answer in the corpus.
    """
    texts, left_out = _texts(corpus, fields)
    asked: dict[str, str] = {}
    for where, row in rows(queries, ["text"], [fields.id, "_id"]):
        if not isinstance(row["text"], str):
            raise DataError(f"{where}: field 'text' must be text")
        if _holds_words(row["text"]):
            asked[_id(row, where, fields)] = row["text"]
        else:
            left_out += 1
    grades: dict[str, dict[str, float]] = {}
    without_answer = 0
    for where, row in rows(qrels, ["score"], _PAIR):
        query = row.get("query_id", row.get("query-id"))
        document = row.get("doc_id", row.get("corpus-id"))
        if query is None or document is None:
            raise DataError(f"{where}: expected the columns query_id, doc_id and score")
        try:
            grade = float(row["score"])
        except (TypeError, ValueError):
            grade = math.nan
        if not math.isfinite(grade):
            raise DataError(f"{where}: the score must be a number")
        if row.get("split") not in (None, "test"):
            continue
        if grade <= 0:
            without_answer += 1
            continue
        if str(query) in asked and str(document) in texts:
            grades.setdefault(str(query), {})[str(document)] = grade
        else:
            left_out += 1
    if not grades:
        raise DataError(
            f"{qrels}: no judgement with a score above 0 matches a query and a document of the set "
            f"({without_answer} have a score of 0 or below)"
        )
    answers = {document for judged in grades.values() for document in judged}
    names = list(texts)
    if fields.limit is not None:
        others = [name for name in names if name not in answers]
        room = max(0, fields.limit - len(answers))
        kept = answers | {others[i] for i in _drawn(len(others), room)}
        names = [name for name in names if name in kept]
    number = {name: i for i, name in enumerate(names)}
    relevant = [{number[d]: grade for d, grade in judged.items()} for judged in grades.values()]
    itself = {
        i: number[query]
        for i, (query, judged) in enumerate(grades.items())
        if query in number and query not in judged and _is(asked[query], texts[query])
    }
    found = [texts[name] for name in names]
    return Judged(name, found, [asked[q] for q in grades], relevant, left_out, itself)


def _is(query: str, document: str) -> bool:
    """Whether a document, with or without a title, is the query."""
    return document == query or document.endswith(f"\n\n{query}")


def read_plain(path: Path, name: str, fields: Fields) -> Documents:
    """Documents without labels.

    Raises:
        DataError: the file is not readable or has no text.
    """
    found = [row[fields.text] for _, row in rows(path, [fields.text], [])]
    texts = [text for text in found if _holds_words(text)]
    if not texts:
        raise DataError(f"{path}: no row holds text")
    kept = [texts[i] for i in _drawn(len(texts), fields.limit)]
    return Documents(name, kept, len(found) - len(texts))


def _texts(path: Path, fields: Fields, mask: str | None = None) -> tuple[dict[str, str], int]:
    """Texts by id, each after its title if there is one, and the number of rows without text."""
    texts: dict[str, str] = {}
    left_out = 0
    for where, row in rows(path, [fields.text], [fields.id, "_id", fields.title]):
        text = _titled(row.get(fields.title), row[fields.text])
        if mask:
            text = re.sub(mask, " ", text)
        if _holds_words(text):
            name = _id(row, where, fields)
            if texts.setdefault(name, text) != text:
                raise DataError(
                    f"{where}: a document before it has the id {name!r} and another text; give "
                    "each its own id"
                )
        else:
            left_out += 1
    return texts, left_out


def _id(row: Row, where: str, fields: Fields) -> str:
    given = row.get(fields.id, row.get("_id"))
    if given is None:
        raise DataError(f"{where}: no column {fields.id} (or _id)")
    return str(given)


def _holds_words(text: object) -> bool:
    """Whether a cell is text with a letter or digit."""
    return isinstance(text, str) and _WORD.search(text) is not None


def _is_empty(label: object) -> bool:
    """Whether a cell holds no label. Libraries write NaN for a missing one."""
    if isinstance(label, str):
        return not label.strip()
    return label is None or (isinstance(label, float) and math.isnan(label))


def _drawn(count: int, limit: int | None) -> Sequence[int]:
    """Numbers of at most ``limit`` of ``count`` documents, ascending; always the same draw."""
    if limit is None or count <= limit:
        return range(count)
    chosen = np.random.default_rng(0).choice(count, size=limit, replace=False)
    return sorted(int(i) for i in chosen)


def _titled(title: object, text: object) -> str:
    body = text if isinstance(text, str) else ""
    return f"{title}\n\n{body}" if isinstance(title, str) and title.strip() else body


def _digest(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:8])


def _stratified(labels: npt.NDArray[np.int64], limit: int | None) -> npt.NDArray[np.int64]:
    """Numbers of at most ``limit`` rows that keep the proportions of the classes."""
    order = np.random.default_rng(0).permutation(len(labels))
    if limit is None or len(labels) <= limit:
        return np.arange(len(labels))
    # A row's place within its class, as a share of the class, spreads classes evenly.
    place = np.empty(len(labels))
    for label in np.unique(labels):
        own = order[labels[order] == label]
        place[own] = (np.arange(len(own)) + 0.5) / len(own)
    return np.sort(np.argsort(place, kind="stable")[:limit])
