"""Completes PDFs with the recognised text of pages that show it as a picture."""

from __future__ import annotations

import json
import re
import time
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import IO

from docsplit.extraction.content import Content, Heading, Limits, StartError, UnreadableError
from docsplit.extraction.pdf.lines import HYPHEN, joined, without_repeated
from docsplit.extraction.sandbox import Sandbox

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
