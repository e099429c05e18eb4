"""Makes a file of each kind from a document; each library is needed only for its own kind."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import format_datetime
from html import escape

from benchmarks.files.source import AUTHOR, Source

_OFFICE = "urn:oasis:names:tc:opendocument:xmlns"


def word(source: Source) -> bytes:
    """DOCX by python-docx."""
    import docx

    made = docx.Document()
    properties = made.core_properties
    properties.title, properties.author = source.title, AUTHOR
    properties.created = datetime.fromisoformat(source.date)
    made.sections[0].header.paragraphs[0].text = "Header of each page"
    for level, text in source.blocks:
        if level:
            made.add_heading(text, min(level, 9))
        else:
            made.add_paragraph(text)
    return _saved(made.save)


def slides(source: Source) -> tuple[bytes, list[str]]:
    """PPTX by python-pptx, and the text of each slide."""
    import pptx

    made = pptx.Presentation()
    made.core_properties.title, made.core_properties.author = source.title, AUTHOR
    texts: list[str] = []
    for start in range(0, len(source.blocks), 4):
        part = source.blocks[start : start + 4]
        slide = made.slides.add_slide(made.slide_layouts[1])
        slide.shapes.title.text = part[0][1]
        slide.placeholders[1].text = "\n".join(text for _, text in part[1:])
        texts.append("\n".join(text for _, text in part))
    return _saved(made.save), texts


def sheets(source: Source) -> bytes:
    """XLSX by XlsxWriter: a row for each block."""
    import xlsxwriter

    target = io.BytesIO()
    book = xlsxwriter.Workbook(
        target, {"in_memory": True, "strings_to_formulas": False, "strings_to_urls": False}
    )
    book.set_properties({"title": source.title, "author": AUTHOR})
    sheet = book.add_worksheet("Blocks")
    for row, (_, text) in enumerate(source.blocks):
        # a cell holds at most 32,767 characters
        sheet.write_string(row, 0, text[:32_000])
    book.close()
    return target.getvalue()


def opendocument(source: Source) -> bytes:
    """ODT as LibreOffice lays out its parts."""
    blocks = "".join(
        f'<text:h text:outline-level="{level}">{_spaced(text)}</text:h>'
        if level
        else f"<text:p>{_spaced(text)}</text:p>"
        for level, text in source.blocks
    )
    names = " ".join(f'xmlns:{name}="{_OFFICE}:{name}:1.0"' for name in ("office", "text", "meta"))
    content = (
        f"<office:document-content {names}><office:body><office:text>{blocks}"
        "</office:text></office:body></office:document-content>"
    )
    meta = (
        f'<office:document-meta {names} xmlns:dc="http://purl.org/dc/elements/1.1/"><office:meta>'
        f"<dc:title>{escape(source.title)}</dc:title>"
        f"<meta:initial-creator>{AUTHOR}</meta:initial-creator>"
        f"<meta:creation-date>{source.date}T10:00:00</meta:creation-date>"
        "</office:meta></office:document-meta>"
    )
    return packed(
        {
            "mimetype": "application/vnd.oasis.opendocument.text",
            "content.xml": content,
            "meta.xml": meta,
        }
    )


def epub(source: Source) -> bytes:
    """EPUB of two chapters."""
    half = len(source.blocks) // 2
    chapters = [source.blocks[:half], source.blocks[half:]]
    package = (
        '<package xmlns="http://www.idpf.org/2007/opf"><metadata '
        f'xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>{escape(source.title)}</dc:title>'
        f"<dc:creator>{AUTHOR}</dc:creator><dc:date>{source.date}</dc:date></metadata><manifest>"
        '<item id="b" href="text/2.xhtml"/><item id="a" href="text/1.xhtml"/></manifest>'
        '<spine><itemref idref="a"/><itemref idref="b"/></spine></package>'
    )
    return packed(
        {
            "META-INF/container.xml": '<container><rootfiles><rootfile full-path="OPS/book.opf"/>'
            "</rootfiles></container>",
            "OPS/book.opf": package,
            **{
                f"OPS/text/{number}.xhtml": f"<html><body>{_marked(blocks)}</body></html>"
                for number, blocks in enumerate(chapters, 1)
            },
        }
    )


def html(source: Source) -> bytes:
    """HTML with a script and navigation, which are no text."""
    return (
        f"<!DOCTYPE html><html><head><meta charset=latin-1><title>{escape(source.title)}</title>"
        f'<meta name="author" content="{AUTHOR}"><meta name="date" content="{source.date}">'
        "<script>var nothing;</script></head><body><nav>Home</nav>"
        f"{_marked(source.blocks)}</body></html>"
    ).encode("latin-1")


def markdown(source: Source) -> bytes:
    """Markdown with hashes."""
    blocks = (
        f"{'#' * min(level, 6)} {text}" if level else re.sub(r"^(?=[#`~])", r"\\", text)
        for level, text in source.blocks
    )
    return "\n\n".join(blocks).encode()


def restructured(source: Source) -> bytes:
    """reStructuredText with underlines."""
    marks = " =-~^\"'*+"
    blocks = (
        f"{text}\n{marks[level] * max(3, len(text))}" if level else text
        for level, text in source.blocks
    )
    return "\n\n".join(blocks).encode("utf-16")


def mail(source: Source) -> bytes:
    """E-mail whose second half is an attachment."""
    half = len(source.blocks) // 2
    message = EmailMessage()
    message["Subject"], message["From"] = source.title[:60], f"{AUTHOR} <ada@example.org>"
    message["Date"] = datetime.fromisoformat(source.date).replace(tzinfo=UTC)
    message.set_content("\n\n".join(text for _, text in source.blocks[:half]), cte="base64")
    rest = "\n\n".join(text for _, text in source.blocks[half:])
    message.add_attachment(rest, subtype="plain", filename="rest.txt", charset="latin-1")
    message.add_attachment(b"\x89PNG", maintype="image", subtype="png", filename="a.png")
    return message.as_bytes()


def rtf(source: Source) -> bytes:
    """RTF in Windows' Western encoding."""
    blocks = "".join(f"{_rtf(text)}\\par\n" for _, text in source.blocks)
    year, month, day = (int(part) for part in source.date.split("-"))
    return (
        f"{{\\rtf1\\ansi\\ansicpg1252{{\\info{{\\title {_rtf(source.title)}}}{{\\author {AUTHOR}}}"
        f"{{\\creatim\\yr{year}\\mo{month}\\dy{day}}}}}\n{blocks}}}"
    ).encode("ascii")


def text(source: Source) -> bytes:
    """Plain text in an encoding without a mark."""
    return source.text.encode("latin-1")


@dataclass(frozen=True)
class Made:
    """A file and what a reader should find in it.

    Attributes:
        content: of the file.
        text: apart from blanks.
        pages: the text of each, if the kind has pages.
        headings: titles, if the kind tells them apart.
    """

    content: bytes
    text: str
    pages: list[str] | None = None
    headings: list[str] | None = None


def made(kind: str, source: Source) -> Made:
    """A file of a kind."""
    headings = [text for level, text in source.blocks if level]
    match kind:
        case ".pdf":
            from benchmarks.files.pdf import pdf

            content, pages = pdf(source)
            return Made(content, "\n".join(pages), pages, headings)
        case ".pptx":
            content, pages = slides(source)
            return Made(content, source.text, pages)
        case ".xlsx":
            return Made(sheets(source), f"Blocks {source.text}", None, ["Blocks"])
        case ".eml":
            return Made(mail(source), _attached(source), None, [source.title[:60], "rest.txt"])
        case ".md":
            return Made(markdown(source), markdown(source).decode(), None, headings)
        case ".rst":
            content = restructured(source)
            return Made(content, content.decode("utf-16"), None, headings)
        case ".rtf" | ".txt":
            return Made(_WRITERS[kind](source), source.text)
    return Made(_WRITERS[kind](source), source.text, None, headings)


_WRITERS: dict[str, Callable[[Source], bytes]] = {
    ".docx": word,
    ".odt": opendocument,
    ".epub": epub,
    ".html": html,
    ".rtf": rtf,
    ".txt": text,
}
KINDS = (".pdf", ".pptx", ".xlsx", ".eml", ".md", ".rst", *_WRITERS)


def packed(parts: dict[str, str | bytes]) -> bytes:
    """A zip archive."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return target.getvalue()


def _attached(source: Source) -> str:
    half = len(source.blocks) // 2
    texts = [text for _, text in source.blocks]
    date = datetime.fromisoformat(source.date).replace(tzinfo=UTC)
    head = [
        source.title[:60],
        f"From: {AUTHOR} <ada@example.org>",
        f"Date: {format_datetime(date)}",
    ]
    head.append("Attachments: rest.txt, a.png")
    return "\n\n".join([*head, *texts[:half], "rest.txt", *texts[half:]])


def _saved(save: Callable[[io.BytesIO], object]) -> bytes:
    target = io.BytesIO()
    save(target)
    return target.getvalue()


def _spaced(text: str) -> str:
    return escape(text).replace("  ", ' <text:s text:c="1"/>')


def _marked(blocks: list[tuple[int, str]]) -> str:
    return "".join(
        f"<h{min(level, 6)}>{escape(text)}</h{min(level, 6)}>"
        if level
        else f"<p>{escape(text)}</p>"
        for level, text in blocks
    )


def _rtf(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("{", "\\{").replace("}", "\\}")
    return "".join(one if one.isascii() else f"\\'{ord(one):02x}" for one in escaped)
