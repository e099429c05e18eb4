"""A reader, and files of bytes."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from docsplit.extraction.content import Content, Limits, UnreadableError
from docsplit.extraction.reading import Reader

# files that LibreOffice 7.4 wrote
LIBREOFFICE = Path(__file__).parent / "libreoffice"

Outcomes = list[tuple[str, Content | UnreadableError]]
Read = Callable[[str, bytes], Outcomes]


def outcomes(reader: Reader, kind: str, content: bytes) -> Outcomes:
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.seek(0)
        return list(reader.read(kind, file))


@pytest.fixture(scope="session")
def read() -> Iterator[Read]:
    """Reads files with the usual limits."""
    with Reader() as reader:
        yield lambda kind, content: outcomes(reader, kind, content)


@pytest.fixture(scope="session")
def read_bounded() -> Iterator[Read]:
    """Reads files with small limits."""
    limits = Limits(
        memory=1 << 28, seconds=10, pages=20, characters=100_000, members=20, unpacked=1 << 24
    )
    with Reader(limits, ocr="off") as reader:
        yield lambda kind, content: outcomes(reader, kind, content)


def content_of(found: Outcomes) -> Content:
    [(_, content)] = found
    assert isinstance(content, Content), content
    return content


def reason_of(found: Outcomes) -> str:
    [(_, error)] = found
    assert isinstance(error, UnreadableError), error
    return str(error)
