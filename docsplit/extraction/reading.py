"""Reads files and archives: the entry of this package."""

from __future__ import annotations

import json
import tempfile
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from pydantic import TypeAdapter

from docsplit.extraction.content import Content, Limits, UnreadableError
from docsplit.extraction.kinds import ARCHIVES, OLD, READERS, SOURCES
from docsplit.extraction.sandbox import Sandbox
from docsplit.extraction.scans import Scans
from docsplit.extraction.sources import content_of

# this process checks what the confined one wrote, which therefore needs no pydantic
_CONTENT = TypeAdapter(Content)
_INVALID = "its reader gave no valid answer"
# bytes of a line about a file in an archive
_LINE = 1 << 21

Outcome = tuple[str, Content | UnreadableError]


class Reader:
    """Reads files in confined processes. Use it in one thread, and as a context manager.

    Args:
        limits: of each file.
        folder: of temporary files, which hold what archives unpack to; None takes the system's.
        ocr: languages of the text in scans; see ``docsplit.extraction.scans.Scans``.
    """

    def __init__(
        self, limits: Limits | None = None, folder: Path | None = None, ocr: str = "auto"
    ) -> None:
        self._limits = limits or Limits()
        self._folder = folder
        self._sandbox = Sandbox(self._limits, folder)
        self._scans = Scans(self._limits, folder, ocr)

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the processes."""
        self._sandbox.close()
        self._scans.close()

    def interrupt(self) -> None:
        """End the present reading from another thread; its file then counts as unreadable."""
        self._sandbox.interrupt()
        self._scans.interrupt()

    def read(self, kind: str, source: IO[bytes]) -> Iterator[Outcome]:
        """The contents of a file, or of the files in an archive, or why one cannot be read.

        Args:
            kind: of ``KINDS`` in kinds.py, with the packing of a packed file: ``.txt.gz``.
            source: a real file, at its start.

        Yields:
            The name inside the archive, or "" for the file itself, and the outcome.

        Raises:
            StartError: no file can be read.
        """
        self._scans.begin()
        yield from self._read(kind, source)

    def _read(self, kind: str, source: IO[bytes]) -> Iterator[Outcome]:
        inner, _, packing = kind.rpartition(".")
        if inner:
            yield from self._packed(inner, f".{packing}", source)
            return
        if kind in OLD:
            yield "", UnreadableError(OLD[kind])
            return
        if kind in SOURCES and (plain := self._plain(kind, source)) is not None:
            yield "", plain
            return
        try:
            answer = self._sandbox.run(kind, source)
        except UnreadableError as error:
            yield "", error
            return
        with answer:
            if kind in ARCHIVES:
                yield from self._members(answer)
                return
            found = _content(answer.read())
        if isinstance(found, Content) and found.scans:
            found = self._scans.completed(found, source)
        yield "", found

    def _packed(self, kind: str, packing: str, source: IO[bytes]) -> Iterator[Outcome]:
        with tempfile.TemporaryFile(dir=self._folder) as content:
            try:
                with self._sandbox.run(packing, source) as answer:
                    for line in iter(lambda: answer.readline(_LINE), b""):
                        content.write(_data(line))
            except UnreadableError as error:
                yield "", error
                return
            content.seek(0)
            yield from self._read(kind, content)

    def _plain(self, kind: str, source: IO[bytes]) -> Content | None:
        """A text in UTF-8: this needs no parser, and takes a tenth of the time of a process."""
        content = source.read(self._limits.characters + 1)
        source.seek(0)
        # an escape may begin Japanese in ISO-2022-JP, whose bytes pass as UTF-8
        if len(content) > self._limits.characters or b"\0" in content or b"\x1b" in content:
            return None
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError:
            return None
        # a process gives the reason for a text of blanks
        return content_of(kind, text) if text.strip() else None

    def _members(self, answer: IO[bytes]) -> Iterator[Outcome]:
        try:
            yield from self._each(answer)
        except ValueError:
            yield "", UnreadableError(_INVALID)

    def _each(self, answer: IO[bytes]) -> Iterator[Outcome]:
        name = ""
        with tempfile.TemporaryFile(dir=self._folder) as content:
            for line in iter(lambda: answer.readline(_LINE), b""):
                match json.loads(line):
                    case {"name": str(name)}:
                        content.seek(0)
                        content.truncate()
                    case {"data": str(data)}:
                        content.write(b64decode(data))
                    case {"end": True}:
                        content.seek(0)
                        kind = PurePosixPath(name).suffix.lower()
                        if kind not in (*READERS, *SOURCES):
                            raise ValueError(kind)
                        for _, outcome in self._read(kind, content):
                            yield name, outcome
                    case {"refused": str(reason), "whole": bool(whole)}:
                        yield "" if whole else name, UnreadableError(reason)


def _data(line: bytes) -> bytes:
    """The bytes in a line about a packed file; raises UnreadableError if it has none."""
    try:
        match json.loads(line):
            case {"data": str(data)}:
                return b64decode(data)
            case {"refused": str(reason)}:
                raise UnreadableError(reason)
    except ValueError:
        pass
    raise UnreadableError(_INVALID)


def _content(answer: bytes) -> Content | UnreadableError:
    try:
        if answer.startswith(b'{"refused"'):
            return UnreadableError(str(json.loads(answer)["refused"]))
        return _CONTENT.validate_json(answer)
    except (ValueError, KeyError):
        # a flaw in a parser may have written anything
        return UnreadableError(_INVALID)
