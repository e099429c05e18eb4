"""Reads files and archives: the entry of this package."""

from __future__ import annotations

import json
import re
import tempfile
import time
from base64 import b64decode
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import IO

from pydantic import TypeAdapter

from docsplit.extraction.building import HYPHEN, joined, without_repeated
from docsplit.extraction.content import Content, Heading, Limits, StartError, UnreadableError
from docsplit.extraction.kinds import ARCHIVES, OLD, READERS, SOURCES
from docsplit.extraction.sandbox import Sandbox
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
        ocr: languages of the text in scans; see ``docsplit.extraction.reading.Scans``.
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


# the setting that recognises nothing
OFF = "off"
_REMEDY = "install tesseract, or recognise its text first, for example with ocrmypdf"
_DIVIDED = re.compile(r"(?<=\w)-\n+(?=\w)")


class Scans:
    """Recognises pages in confined processes, each in its own. Use it in one thread.

    Args:
        limits: of each file.
        folder: of temporary files; None takes the system's.
        languages: as tesseract names them, joined by "+"; "auto" takes the installed ones, and
            ``OFF`` recognises nothing.
    """

    def __init__(self, limits: Limits, folder: Path | None, languages: str) -> None:
        self._limits = limits
        self._sandbox = Sandbox(limits, folder, languages)
        self._off = "it is turned off" if languages == OFF else None
        self._absent = self._off
        self._interrupted = False

    def completed(self, content: Content, source: IO[bytes]) -> Content | UnreadableError:
        """A PDF's content with the text of its scans, or why it is no use without them.

        Pages whose text cannot be recognised keep the text that they have.
        """
        rest = replace(content, scans=[], refusal=None)
        try:
            found = self._recognised(content, source)
        except UnreadableError as error:
            if self._interrupted or content.refusal:
                return error
            return rest
        whole = _with(rest, found)
        if not whole.text.strip():
            return UnreadableError(f"{content.refusal}, and tesseract recognises none")
        return whole

    def begin(self) -> None:
        """Forget an interruption: another file begins."""
        self._interrupted = False

    def interrupt(self) -> None:
        """End ``completed`` from another thread: the present one, and those until ``begin``."""
        self._interrupted = True
        self._sandbox.interrupt()

    def close(self) -> None:
        """End the processes."""
        self._sandbox.close()
        # it may be installed meanwhile
        self._absent = self._off

    def _recognised(self, content: Content, source: IO[bytes]) -> dict[int, str]:
        """The texts of pages.

        Raises:
            UnreadableError: no page can be recognised, or not all within the limits.
        """
        limits = self._limits
        if self._absent is None and len(content.scans) > limits.scans:
            raise UnreadableError(
                f"{len(content.scans):,} scanned pages; the limit is {limits.scans:,}: split it"
            )
        found: dict[int, str] = {}
        failure: UnreadableError | None = None
        end = time.monotonic() + limits.scan_seconds
        for page in content.scans:
            try:
                found[page] = self._page(source, page)
            except StartError as error:
                self._absent = str(error)
                raise UnreadableError(f"{content.refusal}: {_REMEDY} ({error})") from error
            except UnreadableError as error:
                # the others may be sound
                failure = error
            if self._interrupted:
                raise UnreadableError("the reading was interrupted")
            if time.monotonic() > end:
                raise UnreadableError(
                    f"recognising its text takes more than {limits.scan_seconds:,} s: split it"
                )
        if failure is not None and not found:
            raise failure
        return found

    def _page(self, source: IO[bytes], page: int) -> str:
        if self._absent is not None:
            raise StartError(self._absent)
        source.seek(0)
        with self._sandbox.run(".pdf", source, page) as answer:
            return _text(answer.read())


def _text(answer: bytes) -> str:
    try:
        found = json.loads(answer)
    except ValueError:
        found = None
    if isinstance(found, dict):
        raise UnreadableError(str(found.get("refused")))
    if not isinstance(found, str):
        raise UnreadableError("its reader gave no valid answer")
    return found


def _with(content: Content, found: Mapping[int, str]) -> Content:
    """A content with other texts of some pages, where these are longer."""
    ends = [*content.pages[1:], len(content.text)]
    old = [content.text[a:b] for a, b in zip(content.pages, ends, strict=True)]
    texts = [_DIVIDED.sub(HYPHEN, found.get(page, "")) for page in range(len(old))]
    lines = [[one for one in text.split("\n") if one.strip()] for text in joined(texts)]
    new = ["\n".join(page) for page in without_repeated(lines)]
    parts: list[str] = []
    pages: list[int] = []
    headings: list[Heading] = []
    size = 0
    for before, after in zip(old, new, strict=True):
        pages.append(size)
        parts.append(before if len(after) <= len(before.strip()) else f"{after}\n")
        size += len(parts[-1])
    text = "".join(parts).rstrip()
    for one in content.headings:
        page = bisect_right(content.pages, one.start) - 1
        within = one.start - content.pages[page] if parts[page] is old[page] else 0
        headings.append(one._replace(start=min(pages[page] + within, len(text))))
    pages = [min(start, len(text)) for start in pages]
    return replace(content, text=text, pages=pages, headings=headings)
