"""Streams the documents of a file or folder: only one of them is in memory at a time."""

from __future__ import annotations

import hashlib
import json
import logging
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import date, time
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from docsplit.corpora.fields import DataError, Fields
from docsplit.corpora.files import files, left_out, suffix, whole
from docsplit.corpora.tables import Row, rows
from docsplit.extraction.content import Content, Heading, StartError
from docsplit.extraction.kinds import KINDS, OLD, PACKAGES

if TYPE_CHECKING:
    from docsplit.extraction.reading import Reader

log = logging.getLogger("docsplit.corpora")

_FIELDS = Fields()
_NONE: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class Document:
    """One document.

    Attributes:
        id: from the source; for a file that is one document its path below the folder, and for a
            file in an archive the archive's path and the path in it.
        text: the whole text.
        title, metadata, links: of a table, from ``read_documents`` only. A file may state a title,
            and the metadata ``author`` and ``date``.
        pages: the first character of each page, if the file has pages.
        headings: of the text, if the file tells them apart.
    """

    id: str
    text: str
    title: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    links: list[str] = field(default_factory=list)
    pages: list[int] = field(default_factory=list)
    headings: list[Heading] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Refused:
    """A file that cannot be read.

    Attributes:
        id: that its document would have; for an archive, that its documents' ids begin with.
        reason: and the remedy.
    """

    id: str
    reason: str


# gets the files that cannot be read; without it, the first one ends the reading
Refuse = Callable[[Refused], None]


def read_texts(
    path: Path, fields: Fields = _FIELDS, *, links: Path | None = None
) -> Iterator[Document]:
    """Stream ids and texts in a fixed order; raises like ``read_documents``.

    Args:
        path: a file or folder.
        fields: names of columns.
        links: a table in the folder that holds no documents.
    """
    for found in _read(path, [fields.text], [fields.id], but=links):
        yield found if isinstance(found, Document) else text_of(found[1], found[0], fields)


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
    path: Path,
    fields: Fields = _FIELDS,
    *,
    declared: Mapping[str, str] = _NONE,
    links: Path | None = None,
    refuse: Refuse | None = None,
    ocr: str = "auto",
) -> Iterator[Document]:
    """Stream whole documents in a fixed order; each row of a table must have an id.

    The columns ``metadata`` (an object, or its JSON) and ``links`` (a list of ids) are read if they
    exist. In CSV and TSV files they hold JSON. Other columns with plain values become metadata, and
    ``declared`` ones with lists. Dates become text in ISO 8601.

    Args:
        path: a file or folder.
        fields: names of columns.
        declared: types of metadata columns, as an index declares them. In CSV and TSV files those
            other than ``string`` and ``date`` hold JSON. Whole numbers of an ``integer`` are
            integers: pandas writes a column of integers with missing values as floating-point
            numbers.
        links: a table of further links, as for ``read_links``; it may be in the folder.
        refuse: gets each row with a wrong value, and each file that cannot be read, tables
            excepted; the others follow.
        ocr: languages of the text in scans; see ``docsplit.extraction.reading.Reader``.

    Raises:
        DataError: a file or field is missing, or a row is malformed; names file and line. Without
            ``refuse``, also for a wrong value and a file that cannot be read.
    """
    further: dict[str, list[str]] = defaultdict(list)
    for citing, cited in read_links(links) if links else ():
        further[citing].append(cited)
    typed = {name for name, kind in declared.items() if kind not in ("string", "date")}
    needed = [fields.id, fields.text]
    for one in _read(path, needed, None, {"metadata", "links", *typed}, links, refuse, ocr):
        if isinstance(one, Document):
            yield replace(one, links=list(further.get(one.id, ())))
            continue
        where, row = one
        try:
            document = _document(row, where, fields, further, declared)
        except DataError as error:
            if refuse is None:
                raise
            refuse(Refused(str(row[fields.id]), str(error)))
            continue
        yield document


def check_source(
    path: Path, fields: Fields = _FIELDS, links: Path | None = None, *, with_ids: bool = True
) -> None:
    """Look at the files of a source, and at the first row of each table, before a long run.

    Args:
        path: a file or folder.
        fields: names of columns.
        links: as for ``read_documents``.
        with_ids: whether each row needs an id.

    Raises:
        DataError: like ``read_documents``, for what shows there.
    """
    if links is not None:
        next(read_links(links), None)
    for ending, count in sorted(left_out(path).items()):
        log.warning("left out: %d of %s, no known type", count, ending or "no ending")
    needed = [fields.id, fields.text] if with_ids else [fields.text]
    for file in files(path, links):
        if suffix(file) not in (*KINDS, *OLD):
            next(rows(file, needed, []), None)


def entries(path: Path, links: Path | None = None) -> Iterator[object]:
    """An item for each row of a table and for each other file, which stays closed.

    Raises:
        DataError: a table is malformed.
    """
    for file in files(path, links):
        if suffix(file) in (*KINDS, *OLD):
            yield file
        else:
            yield from rows(file, [], [])


def _document(
    row: Row,
    where: str,
    fields: Fields,
    further: Mapping[str, Sequence[str]],
    declared: Mapping[str, str],
) -> Document:
    name, title = row[fields.id], row.get(fields.title) or None
    metadata, links = _object(row.get("metadata") or {}), row.get("links") or []
    if not _is_id(name):
        raise DataError(f"{where}: field {fields.id!r} must be text or a whole number, not empty")
    if not isinstance(title, str | None):
        raise DataError(f"{where}: field {fields.title!r} must be text")
    if not isinstance(metadata, dict) or not (isinstance(links, list) and all(map(_is_id, links))):
        raise DataError(f"{where}: metadata must be an object, and links a list of ids")
    known = (fields.id, fields.text, fields.title, "metadata", "links")
    plain = {}
    for key, value in row.items():
        value = _plain(value)
        if key in known or value is None:
            continue
        if declared.get(key) == "integer" and isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, str | int | float) or (key in declared and isinstance(value, list)):
            plain[key] = value
        elif key in declared:
            kind = type(value).__name__
            raise DataError(
                f"{where}: field {key!r} holds {kind}, which metadata cannot have: write text, "
                "numbers, booleans, dates or lists of text"
            )
    links = [*map(str, links), *further.get(str(name), ())]
    text = text_of(row, where, fields).text
    pages, headings = _outline(row.get("outline"), len(text), where)
    return Document(str(name), text, title, plain | metadata, links, pages, headings)


def titled(document: Document) -> Document:
    """The document whose text begins with its title, as retrieval benchmarks (BEIR) read documents.

    A text that begins with its title stays as it is.
    """
    title = (document.title or "").strip()
    if not title or document.text.lstrip().startswith(title):
        return document
    before = f"{title}\n\n"
    moved = len(before)
    return replace(
        document,
        text=before + document.text,
        # the first page keeps its place, and gets the title
        pages=[page and page + moved for page in document.pages],
        headings=[one._replace(start=one.start + moved) for one in document.headings],
    )


def _is_id(value: object) -> bool:
    return isinstance(value, str | int) and value != ""


def _plain(value: object) -> object:
    """Dates, times, UUIDs and decimal numbers, which Parquet has, in the forms that JSON has for
    them; None for NaN, which stands for a missing number in tables of pandas."""
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return value


def _object(given: object) -> object:
    """An object, also from its JSON, as an exported index has it."""
    if not isinstance(given, str):
        return given
    try:
        return json.loads(given)
    except (ValueError, RecursionError):
        return None


def _outline(given: object, length: int, where: str) -> tuple[list[int], list[Heading]]:
    """Pages and headings, if a row has them in the form of an exported index."""
    if not isinstance(given, dict) or given.keys() != {"pages", "headings"}:
        return [], []
    try:
        headings = [Heading(int(one["start"]), 1, str(one["title"])) for one in given["headings"]]
        pages = [int(page) for page in given["pages"]]
    except (TypeError, KeyError, ValueError) as error:
        raise DataError(
            f"{where}: outline must have numbers as pages, and headings with start and title"
        ) from error
    if not all(0 <= start <= length for start in (*pages, *(one.start for one in headings))):
        raise DataError(f"{where}: a page or heading of outline begins outside the text")
    return pages, headings


def read_links(path: Path) -> Iterator[tuple[str, str]]:
    """The citing and cited ids of a table with the columns ``citing`` and ``cited``.

    Raises:
        DataError: the file is not readable or has other columns, or a row lacks an id.
    """
    for where, row in rows(path, ["citing", "cited"], []):
        citing, cited = row["citing"], row["cited"]
        if not (_is_id(citing) and _is_id(cited)):
            raise DataError(f"{where}: citing and cited must be text or whole numbers")
        yield str(citing), str(cited)


def _read(
    path: Path,
    needed: Sequence[str],
    wanted: Sequence[str] | None,
    typed: Collection[str] = (),
    but: Path | None = None,
    refuse: Refuse | None = None,
    ocr: str = "auto",
) -> Iterator[Document | tuple[str, Row]]:
    """Files as documents, and rows of tables with their places."""
    with ExitStack() as stack:
        reader = None
        for file in files(path, but):
            if suffix(file) in (*KINDS, *OLD):
                reader = reader or stack.enter_context(_reader(file, ocr))
                name = file.name if file == path else file.relative_to(path).as_posix()
                yield from _contents(file, name, reader, refuse)
            else:
                yield from rows(file, needed, wanted, typed=typed)


def _reader(file: Path, ocr: str) -> Reader:
    """The reader of files that are no tables; DataError names the extra that it needs."""
    if any(find_spec(name) is None for name in PACKAGES):
        raise DataError(f"{file}: reading it needs pip install 'docsplit[files]'")
    from docsplit.extraction.reading import Reader

    return Reader(ocr=ocr)


def _contents(file: Path, name: str, reader: Reader, refuse: Refuse | None) -> Iterator[Document]:
    shown = name.encode(errors="replace").decode()
    if refuse is not None and shown != name:
        refuse(Refused(shown, "its name is not UTF-8; rename the file"))
        return
    try:
        with whole(file) as source:
            for inner, outcome in reader.read(suffix(file), source):
                if isinstance(outcome, Content):
                    yield of_file(f"{name}/{inner}" if inner else name, outcome)
                elif refuse is None:
                    raise DataError(f"{file}{inner and f': {inner}'}: {outcome}")
                else:
                    refuse(Refused(f"{name}/{inner}" if inner else name, str(outcome)))
    except StartError as error:
        raise DataError(f"{file}: {error}") from error
    except DataError as error:
        if refuse is None:
            raise
        refuse(Refused(name, str(error).removeprefix(f"{file}: ")))


def of_file(name: str, content: Content) -> Document:
    """The document of a file; what the file states about itself becomes metadata."""
    stated = {"author": content.author, "date": content.date}
    metadata = {key: value for key, value in stated.items() if value}
    pages, headings = content.pages, content.headings
    return Document(name, content.text, content.title, metadata, [], pages, headings)
