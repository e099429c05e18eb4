"""How files become linked sets and plain documents."""

from __future__ import annotations

import re
from pathlib import Path

from export.corpora.reading import Fields, drawn, holds_words, titled
from export.corpora.tables import rows
from export.errors import DataError
from training.evaluation.corpora.sets import Documents, Linked


def read_linked(
    documents: Path, citations: Path, name: str, fields: Fields, mask: str | None = None
) -> Linked:
    """Documents with ``id`` and text (after the title, where there is one) and their links.

    What ``mask`` matches is deleted from every text.

    Raises:
        DataError: not readable, or no links among the documents.
    """
    texts: dict[str, str] = {}
    left_out = 0
    for row in rows(documents, ["id", fields.text], ["title"]):
        text = titled(row.get("title"), row[fields.text])
        if mask:
            text = re.sub(mask, " ", text)
        if holds_words(text):
            texts[str(row["id"])] = text
        else:
            left_out += 1
    names = list(texts)
    if fields.limit is not None:
        names = [names[i] for i in drawn(len(names), fields.limit)]
    number = {name: i for i, name in enumerate(names)}
    links: dict[int, set[int]] = {}
    for row in rows(citations, ["citing", "cited"]):
        citing, cited = str(row["citing"]), str(row["cited"])
        if citing in number and cited in number:
            if citing != cited:
                links.setdefault(number[citing], set()).add(number[cited])
        else:
            left_out += 1
    if not links:
        raise DataError(f"{citations}: no pair of ids that are both in {documents}")
    frozen = {citing: frozenset(cited) for citing, cited in links.items()}
    return Linked(name, [texts[name] for name in names], frozen, left_out)


def read_documents(path: Path, name: str, fields: Fields) -> Documents:
    """Documents without labels.

    Raises:
        DataError: not readable, or no text in it.
    """
    found = [row[fields.text] for row in rows(path, [fields.text])]
    texts = [text for text in found if holds_words(text)]
    if not texts:
        raise DataError(f"{path}: no row holds text")
    kept = [texts[i] for i in drawn(len(texts), fields.limit)]
    return Documents(name, kept, len(found) - len(texts))
