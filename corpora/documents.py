"""Streams the documents of a file or folder: only one of them is in memory at a time."""

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from corpora.errors import DataError
from corpora.fields import Fields
from corpora.files import TEXTS, files, suffix, text
from corpora.tables import Row, rows

_FIELDS = Fields()


@dataclass(frozen=True, slots=True)
class Document:
    """One document.

    Attributes:
        id: from the source; for a text file its path below the folder.
        text: the whole text.
        title, metadata, links: from ``read_documents``; empty from ``read_texts``.
    """

    id: str
    text: str
    title: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    links: list[str] = field(default_factory=list)


def read_texts(path: Path, fields: Fields = _FIELDS) -> Iterator[Document]:
    """Stream ids and texts in a fixed order; raises like ``read_documents``."""
    for where, row in _rows(path, fields, [fields.text], [fields.id]):
        yield text_of(row, where, fields)


def text_of(row: Mapping[str, Any], where: str, fields: Fields) -> Document:
    """Id and text of a row; a row without an id gets the SHA-256 of its text.

    Raises:
        DataError: the text is missing or has another type; the message names ``where``.
    """
    body, name = row.get(fields.text), row.get(fields.id)
    if not isinstance(body, str):
        kind = type(body).__name__
        raise DataError(f"{where}: field {fields.text!r} must be text, found {kind}")
    if name in (None, ""):
        name = hashlib.sha256(body.encode("utf-8", "surrogatepass")).hexdigest()
    return Document(str(name), body)


def read_documents(
    path: Path, fields: Fields = _FIELDS, *, typed: Collection[str] = (), links: Path | None = None
) -> Iterator[Document]:
    """Stream whole documents in a fixed order; each row must have an id.

    The columns ``metadata`` (an object) and ``links`` (a list of ids) are read if they exist. In
    CSV and TSV files they hold JSON. Other columns with plain values become metadata, and ``typed``
    ones with lists.

    Args:
        path: a file or folder.
        fields: names of columns.
        typed: metadata columns that hold JSON instead of text in CSV and TSV files.
        links: a table of further links, as for ``read_links``; it may be in the folder.

    Raises:
        DataError: a file or field is missing, or a row is malformed; names file and line.
    """
    further: dict[str, list[str]] = defaultdict(list)
    for citing, cited in read_links(links) if links else ():
        further[citing].append(cited)
    needed = [fields.id, fields.text]
    found = _rows(path, fields, needed, None, {"metadata", "links", *typed}, links)
    return (_document(row, where, fields, further, typed) for where, row in found)


def _document(
    row: Row,
    where: str,
    fields: Fields,
    further: Mapping[str, Sequence[str]],
    typed: Collection[str],
) -> Document:
    name, title = row[fields.id], row.get(fields.title) or None
    metadata, links = row.get("metadata") or {}, row.get("links") or []
    if not isinstance(name, str | int) or name == "":
        raise DataError(f"{where}: field {fields.id!r} must be text or a whole number")
    if not isinstance(title, str | None):
        raise DataError(f"{where}: field {fields.title!r} must be text")
    if not isinstance(metadata, dict) or not isinstance(links, list):
        raise DataError(f"{where}: metadata must be an object, and links a list of ids")
    known = (fields.id, fields.text, fields.title, "metadata", "links")
    plain = {
        key: value
        for key, value in row.items()
        if key not in known
        and (
            isinstance(value, str | int | float | bool)
            or (key in typed and isinstance(value, list))
        )
    }
    links = [*map(str, links), *further.get(str(name), ())]
    return Document(str(name), text_of(row, where, fields).text, title, plain | metadata, links)


def read_links(path: Path) -> Iterator[tuple[str, str]]:
    """The citing and cited ids of a table with the columns ``citing`` and ``cited``.

    Raises:
        DataError: the file is not readable or has other columns.
    """
    for _, row in rows(path, ["citing", "cited"], []):
        yield str(row["citing"]), str(row["cited"])


def _rows(
    path: Path,
    fields: Fields,
    needed: Sequence[str],
    wanted: Sequence[str] | None,
    typed: Collection[str] = (),
    but: Path | None = None,
) -> Iterator[tuple[str, Row]]:
    for file in files(path, but):
        if suffix(file) in TEXTS:
            name = file.name if file == path else file.relative_to(path).as_posix()
            yield str(file), {fields.id: name, fields.text: text(file)}
        else:
            yield from rows(file, needed, wanted, typed=typed)
