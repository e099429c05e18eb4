"""Reads a folder of real files beside an independent reader, and shows the worst of them.

    python -m benchmarks.files.real FOLDER [--most 500] [--worst 10]

PDFs are read by ``pdftotext`` (poppler-utils), Office files by LibreOffice if it is
installed, HTML, EPUB, XML and mail by the standard library, with nothing left out but scripts. A
file of which one of both has no words is shown but not compared.
"""

from __future__ import annotations

import argparse
import email
import re
import shutil
import subprocess
import tempfile
import time
import unicodedata
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import SequenceMatcher
from email import policy
from html.parser import HTMLParser
from pathlib import Path

from docsplit.extraction.content import Content
from docsplit.extraction.kinds import READERS, kind_of
from docsplit.extraction.reading import Reader

_WORD = re.compile(r"\w+")
# words of a file whose order is compared: more cost quadratic time
_MOST_WORDS = 4000
_SECONDS = 60
_MARKUP = {".html", ".htm", ".xhtml", ".xml", ".nxml"}


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._hidden += tag in ("script", "style", "title")
        self.parts.append("" if tag in ("b", "i", "a", "span", "em", "strong") else " ")

    def handle_endtag(self, tag: str) -> None:
        self._hidden -= tag in ("script", "style", "title") and self._hidden > 0
        self.parts.append("" if tag in ("b", "i", "a", "span", "em", "strong") else " ")

    def handle_data(self, data: str) -> None:
        self.parts.append("" if self._hidden else data)


def _markup(content: bytes) -> str:
    page = _Page()
    page.feed(content.decode("utf-8", "replace"))
    page.close()
    return "".join(page.parts)


def _book(path: Path) -> str:
    with zipfile.ZipFile(path) as book:
        names = [one for one in book.namelist() if one.endswith(("html", ".htm"))]
        return "\n".join(_markup(book.read(one)) for one in names)


def _mail(path: Path) -> str:
    message = email.message_from_bytes(path.read_bytes(), policy=policy.default)
    body = message.get_body(("plain", "html"))
    text = "" if body is None else str(body.get_content())
    is_page = body is not None and body.get_content_subtype() == "html"
    return f"{message['subject']}\n{_markup(text.encode()) if is_page else text}"


def _pdftotext(path: Path) -> str:
    command = ["pdftotext", "-layout", "-enc", "UTF-8", str(path), "-"]
    return subprocess.run(
        command, capture_output=True, timeout=_SECONDS, check=False
    ).stdout.decode("utf-8", "replace")


def _libreoffice(path: Path) -> str:
    with tempfile.TemporaryDirectory() as folder:
        form = "csv" if path.suffix in (".xlsx", ".xls", ".ods") else "txt:Text (encoded):UTF8"
        command = ["soffice", "--headless", "--convert-to", form, "--outdir", folder, str(path)]
        subprocess.run(command, capture_output=True, timeout=2 * _SECONDS, check=False)
        return "\n".join(one.read_text("utf-8", "replace") for one in Path(folder).iterdir())


def other(path: Path) -> Callable[[Path], str] | None:
    """The independent reader of a file; None if there is none here."""
    kind = path.suffix.lower()
    if kind == ".pdf":
        return _pdftotext if shutil.which("pdftotext") else None
    if kind in _MARKUP:
        return lambda path: _markup(path.read_bytes())
    if kind in (".epub", ".eml"):
        return _book if kind == ".epub" else _mail
    return _libreoffice if shutil.which("soffice") else None


@dataclass(frozen=True, slots=True)
class Row:
    """What came out of a file.

    Attributes:
        kept: share of the other reader's words that we have.
        order: share of words in the same order.
        own: share of our words that only we have.
    """

    name: str
    kept: float
    order: float
    own: float
    title: str | None
    pages: int
    seconds: float
    error: str = ""


def words(text: str) -> list[str]:
    """The words of a text, whatever form of letters and hyphens it has."""
    text = unicodedata.normalize("NFKC", text).replace("\xad", "")
    return _WORD.findall(re.sub(r"[-\u2010]\s*\n\s*", "", text).lower())


def compared(path: Path, found: Content, seconds: float) -> Row:
    """A file beside the other reader."""
    read = other(path)
    ours, theirs = words(found.text), words(read(path)) if read else []
    shared = (Counter(ours) & Counter(theirs)).total()
    kept = shared / len(theirs) if theirs else float("nan")
    a, b = ours[:_MOST_WORDS], theirs[:_MOST_WORDS]
    same = sum(block.size for block in SequenceMatcher(None, a, b, False).get_matching_blocks())
    order = same / max(1, min(len(a), len(b))) if theirs else float("nan")
    own = 1 - shared / len(ours) if ours and theirs else float("nan")
    return Row(path.name, kept, order, own, found.title, len(found.pages), seconds)


def rows(paths: Iterable[Path]) -> Iterable[Row]:
    """Each file of a kind that we read."""
    with Reader(ocr="off") as reader:
        for path in paths:
            began = time.monotonic()
            with path.open("rb") as stream:
                [(_, found), *_] = reader.read(kind_of(path.name)[0], stream)
            seconds = time.monotonic() - began
            if isinstance(found, Content):
                yield compared(path, found, seconds)
            else:
                yield Row(path.name, 0, 0, 0, None, 0, seconds, str(found))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--most", type=int, default=500)
    parser.add_argument("--worst", type=int, default=10)
    given = parser.parse_args()
    paths = [one for one in sorted(given.folder.rglob("*")) if kind_of(one.name)[0] in READERS]
    found = list(rows(paths[: given.most]))
    read = [one for one in found if not one.error]
    for one in found:
        if one.error:
            print(f"refused: {one.name}: {one.error}")
    for kind in sorted({Path(one.name).suffix.lower() for one in read}):
        group = [one for one in read if one.name.lower().endswith(kind) and one.kept == one.kept]
        means = [
            sum(values) / max(1, len(group))
            for values in zip(*((one.kept, one.order, one.own) for one in group), strict=True)
        ]
        print(kind, len(group), *(f"{mean:.4f}" for mean in means))
    for name, sign in (("kept", 1), ("order", 1), ("own", -1), ("seconds", -1)):
        print(f"\n| worst by {name} | kept | order | only ours | pages | s | title |")
        print("|---|---:|---:|---:|---:|---:|---|")
        comparable = [one for one in read if getattr(one, name) == getattr(one, name)]
        for one in sorted(comparable, key=lambda one: sign * getattr(one, name))[: given.worst]:
            shown = f"{one.kept:.3f} | {one.order:.3f} | {one.own:.3f} | {one.pages}"
            print(f"| {one.name} | {shown} | {one.seconds:.2f} | {one.title} |")


if __name__ == "__main__":
    main()
