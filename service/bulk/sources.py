"""Documents from files: JSON lines, or a folder of texts."""

from __future__ import annotations

import csv
import gzip
import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from service.errors import CommandError

_KNOWN = {"id", "text", "title", "metadata", "links"}
_TEXTS = {".txt", ".md", ".rst"}
_LINES = (".jsonl", ".jsonl.gz")


class SourceError(CommandError):
    """A file that cannot be read as documents; the message names the place."""


@dataclass(frozen=True, slots=True)
class Source:
    """A document as it lies in a file."""

    id: str
    text: str
    title: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    links: list[str] = field(default_factory=list)


def read(path: Path, links: dict[str, list[str]]) -> Iterator[Source]:
    """Documents of a file or of all files in a folder, in the order of their paths.

    A line of JSON holds ``id``, ``text``, and what may be left out: ``title``, ``metadata``,
    ``links``; further plain values become metadata. A ``.txt``, ``.md`` or ``.rst`` file is one
    document, its path below the folder the id.

    Raises:
        SourceError: no such file, of no such kind, or a line that holds no document.
    """
    if path.is_dir():
        files = sorted(p for p in path.rglob("*") if p.is_file() and _readable(p))
        if not files:
            raise SourceError(f"{path}: holds no .jsonl, .jsonl.gz, .txt, .md or .rst file")
    elif path.is_file() and _readable(path):
        files = [path]
    else:
        raise SourceError(f"{path}: give a folder, or a .jsonl, .jsonl.gz, .txt, .md or .rst file")
    for file in files:
        if file.name.endswith(_LINES):
            yield from _lines(file, links)
        else:
            name = file.relative_to(path).as_posix() if path.is_dir() else file.name
            yield Source(name, _text(file), links=links.get(name, []))


def read_links(path: Path | None) -> dict[str, list[str]]:
    """Links by citing id, from a CSV file with the columns ``citing`` and ``cited``.

    Raises:
        SourceError: no such file, or other columns.
    """
    found: dict[str, list[str]] = defaultdict(list)
    if path is None:
        return found
    try:
        with path.open(encoding="utf-8", newline="") as rows:
            for row in csv.DictReader(rows):
                found[row["citing"]].append(row["cited"])
    except (OSError, KeyError, UnicodeDecodeError) as error:
        raise SourceError(f"{path}: no CSV file with the columns citing and cited") from error
    return found


def _readable(path: Path) -> bool:
    return path.suffix in _TEXTS or path.name.endswith(_LINES)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise SourceError(f"{path}: not UTF-8") from error


def _lines(path: Path, links: dict[str, list[str]]) -> Iterator[Source]:
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                row = json.loads(line)
                yield _source(row, links)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise SourceError(
                    f"{path}:{number}: each line is a JSON object with the strings id and text"
                ) from error


def _source(row: dict[str, Any], links: dict[str, list[str]]) -> Source:
    name, text, title = row["id"], row["text"], row.get("title")
    if not isinstance(name, str) or not name or not isinstance(text, str):
        raise TypeError
    further = {
        key: value
        for key, value in row.items()
        if key not in _KNOWN and isinstance(value, str | int | float | bool)
    }
    cited = [*row.get("links", []), *links.get(name, [])]
    return Source(name, text, title, further | row.get("metadata", {}), cited)
