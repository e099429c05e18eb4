"""Reads files and archives: the entry of this package."""

from __future__ import annotations

import json
import re
import tempfile
import time
from base64 import b64decode
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from contextlib import suppress
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
# the setting that recognises nothing
OFF = "off"
_REMEDY = "install tesseract, or recognise its text first, for example with ocrmypdf"
_DIVIDED = re.compile(r"(?<=\w)-\n+(?=\w)")

Outcome = tuple[str, Content | UnreadableError]


class Reader:
    """Reads files in confined processes. Use it in one thread, and as a context manager.

    Args:
        limits: of each file.
        folder: of temporary files, which hold what archives unpack to; None takes the system's.
        ocr: languages of the text in scans, as tesseract names them, joined by "+"; "auto" takes
            the installed ones, and ``OFF`` recognises nothing.
    """

    def __init__(
        self, limits: Limits | None = None, folder: Path | None = None, ocr: str = "auto"
    ) -> None:
        self._limits = limits or Limits()
        self._folder = folder
        self._ocr = ocr
        self._sandbox = Sandbox(self._limits, folder)
        self._interrupted = False

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        self._sandbox.close()

    def interrupt(self) -> None:
        """End the present reading from another thread; its file then counts as unreadable."""
        self._interrupted = True
        self._sandbox.interrupt()

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
        self._interrupted = False
        yield from self._read(kind, source)

    def _read(self, kind: str, source: IO[bytes]) -> Iterator[Outcome]:
        packed, kind = kind, kind[: kind.rindex(".")] or kind
        if kind in OLD:
            yield "", UnreadableError(OLD[kind])
            return
        if kind in SOURCES and kind == packed and (plain := self._plain(kind, source)) is not None:
            yield "", plain
            return
        try:
            answer = self._sandbox.run(packed, source)
        except UnreadableError as error:
            yield "", error
            return
        with answer:
            if kind in ARCHIVES:
                try:
                    yield from self._members(answer)
                except ValueError:
                    yield "", UnreadableError(_INVALID)
                return
            found = _content(answer.read())
        if isinstance(found, Content) and found.scans:
            found = self._completed(found, packed, source)
        yield "", found

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

    def _completed(
        self, content: Content, kind: str, source: IO[bytes]
    ) -> Content | UnreadableError:
        """A PDF's content with the text of its scans, or why it is no use without them.

        Pages whose text cannot be recognised keep the text that they have.
        """
        rest = replace(content, scans=[], refusal=None)
        try:
            whole = _with(rest, self._recognised(content, kind, source))
        except UnreadableError as error:
            return error if self._interrupted or content.refusal else rest
        if not whole.text.strip():
            return UnreadableError(f"{content.refusal}, and tesseract recognises none")
        return whole

    def _recognised(self, content: Content, kind: str, source: IO[bytes]) -> dict[int, str]:
        """The texts of pages.

        Raises:
            UnreadableError: no page can be recognised, or not all within the limits.
        """
        limits = self._limits
        found: dict[int, str] = {}
        failure: UnreadableError | None = None
        end = time.monotonic() + limits.scan_seconds
        for page in content.scans:
            try:
                found[page] = self._page(kind, source, page)
            except StartError as error:
                raise UnreadableError(f"{content.refusal}: {_REMEDY} ({error})") from error
            except UnreadableError as error:
                # the others may be sound
                failure = error
            if self._interrupted:
                raise UnreadableError("the reading was interrupted")
            if len(content.scans) > limits.scans:
                raise UnreadableError(
                    f"{len(content.scans):,} scanned pages; the limit is {limits.scans:,}: split it"
                )
            if time.monotonic() > end:
                raise UnreadableError(
                    f"recognising its text takes more than {limits.scan_seconds:,} s: split it"
                )
        if failure is not None and not found:
            raise failure
        return found

    def _page(self, kind: str, source: IO[bytes], page: int) -> str:
        if self._ocr == OFF:
            raise StartError("it is turned off")
        source.seek(0)
        with self._sandbox.run(kind, source, page, self._ocr) as answer, suppress(ValueError):
            match json.loads(answer.read()):
                case str(text):
                    return text
                case {"refused": str(reason)}:
                    raise UnreadableError(reason)
        raise UnreadableError(_INVALID)


def _content(answer: bytes) -> Content | UnreadableError:
    try:
        if answer.startswith(b'{"refused"'):
            return UnreadableError(str(json.loads(answer)["refused"]))
        return _CONTENT.validate_json(answer)
    except (ValueError, KeyError):
        # a flaw in a parser may have written anything
        return UnreadableError(_INVALID)


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
