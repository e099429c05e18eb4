"""Recognises the sets in a folder by their files and columns."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from docsplit.corpora.fields import DataError, Fields
from docsplit.corpora.files import TABLES, stem
from docsplit.corpora.reading import read_judged, read_labelled, read_linked, read_plain
from docsplit.corpora.sets import AnySet, Documents, Judged, Labelled, Linked
from docsplit.corpora.tables import is_table, rows

# Identifiers that name the cited document; they are deleted from the texts of these sets.
MASKS = {
    "specs_cite": r"(?i)\b(?:pep|eip|erc|bip|rfc)s?[-_\s:`#]*\d+`?(?:[-/.]\S*)?",
    "peps": r"(?i)\bpep(?:s)?[-\s:`]*\d+`?(?:[-/]\S*)?",
}


@dataclass(frozen=True)
class Found:
    """A set that was not read yet.

    Attributes:
        name: of the file or folder.
        kind: type of the result of ``load``.
        load: reads the set.
    """

    name: str
    kind: type[AnySet]
    load: Callable[[], AnySet]


def discover(
    paths: Sequence[Path], fields: Fields, masks: Mapping[str, str] | None = None
) -> list[Found]:
    """The sets below some paths, in the order of the paths and of the names below each.

    A folder with ``documents`` and ``citations`` files is a linked set, one with ``corpus``,
    ``queries`` and ``qrels`` a judged one; other folders are searched. A table with a label column
    is a labelled set, another one documents.

    Raises:
        DataError: a path does not exist or holds no set, or two sets have one name.
    """
    found: dict[str, Found] = {}
    patterns = {**MASKS, **(masks or {})}
    for path in paths:
        if not path.exists():
            raise DataError(f"--data {path}: no such file or folder")
        before = len(found)
        for one in _below(path, fields, patterns):
            if one.name in found:
                raise DataError(f"{path}: a second set named {one.name}; rename one of them")
            found[one.name] = one
        if len(found) == before:
            raise DataError(
                f"--data {path}: no set in it; expected {', '.join(TABLES)} files, or folders "
                "with documents and citations, or corpus, queries and qrels"
            )
    return list(found.values())


def judged_files(folder: Path) -> tuple[Path, Path, Path] | None:
    """Corpus, queries and judgements of a folder; None if it is not a judged set."""
    corpus, queries = _named(folder, "corpus"), _named(folder, "queries")
    qrels = _named(folder, "qrels") or _named(folder / "qrels", "test")
    return (corpus, queries, qrels) if corpus and queries and qrels else None


def _named(folder: Path, name: str) -> Path | None:
    """The table called ``name`` in a folder, of any type."""
    if not folder.is_dir():
        return None
    return next((p for p in sorted(folder.iterdir()) if is_table(p) and stem(p) == name), None)


def _below(path: Path, fields: Fields, masks: Mapping[str, str]) -> Iterator[Found]:
    if path.is_file():
        yield _table(path, fields)
        return
    name = path.resolve().name
    documents, citations = _named(path, "documents"), _named(path, "citations")
    judged = judged_files(path)
    if documents and citations:
        mask = masks.get(name)
        yield Found(name, Linked, partial(read_linked, documents, citations, name, fields, mask))
    elif judged:
        yield Found(name, Judged, partial(read_judged, *judged, name, fields))
    else:
        for child in sorted(path.iterdir()):
            if child.is_dir() or is_table(child):
                yield from _below(child, fields, masks)


def _table(path: Path, fields: Fields) -> Found:
    _, first = next(rows(path), (path, None))
    if first is None:
        raise DataError(f"{path}: holds no rows")
    name = stem(path)
    if fields.label in first:
        return Found(name, Labelled, partial(read_labelled, path, name, fields))
    return Found(name, Documents, partial(read_plain, path, name, fields))
