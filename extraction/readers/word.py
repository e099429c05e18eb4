"""DOCX: paragraphs, tables, notes, headings, and pages as Word last laid them out."""

import re
from collections.abc import Iterator
from typing import BinaryIO
from xml.etree.ElementTree import Element

from extraction.building import PAGE, Builder
from extraction.content import Content, Limits
from extraction.readers.package import Package, attribute, below, child, local

_MAIN = "word/document.xml"
# deleted text, and the copy of a text box for older versions
_SKIPPED = {"del", "moveFrom", "Fallback", "pPr", "rPr"}
_WRAPPERS = {"sdt", "sdtContent", "ins"}
_SPACES = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}
_DEEPEST = 9
_BLANKS = re.compile(r"\s+")


def read(stream: BinaryIO, limits: Limits) -> Content:
    """The text of the document and then of its notes, without headers and footers."""
    package = Package(stream, limits, _MAIN, "DOCX")
    levels = _levels(package.xml("word/styles.xml"))
    body = child(package.xml(_MAIN), "body")
    builder = Builder(limits)
    if body is not None:
        if next(below(body, "lastRenderedPageBreak"), None) is not None:
            builder.page()
        _blocks(body, builder, levels)
    for notes in ("word/footnotes.xml", "word/endnotes.xml"):
        _blocks(package.xml(notes), builder, levels)
    return package.finished(builder)


def _levels(styles: Element) -> dict[str, int]:
    """Levels of headings by the id of the style."""
    found = {}
    for style in below(styles, "style"):
        name = attribute(child(style, "name"), "val").lower()
        outline = attribute(child(style, "pPr", "outlineLvl"), "val")
        if name == "title":
            found[attribute(style, "styleId")] = 1
        elif outline.isdecimal() and int(outline) < _DEEPEST:
            found[attribute(style, "styleId")] = int(outline) + 1
        elif name.startswith("heading ") and name[8:].isdecimal():
            found[attribute(style, "styleId")] = int(name[8:])
    return found


def _blocks(parent: Element, builder: Builder, levels: dict[str, int]) -> None:
    for element in parent:
        match local(element):
            case "p":
                _paragraph(element, builder, levels)
            case "tbl":
                builder.add("\n".join(map(_row, _rows(element))))
            case name if name not in _SKIPPED:
                # content controls, notes and insertions hold paragraphs
                _blocks(element, builder, levels)


def _rows(parent: Element) -> Iterator[Element]:
    """The rows of a table, without those of tables in its cells."""
    for element in parent:
        if local(element) == "tr":
            yield element
        elif local(element) in _WRAPPERS:
            yield from _rows(element)


def _row(row: Element) -> str:
    cells = (_text(cell) for cell in row if local(cell) != "trPr")
    return "\t".join(_BLANKS.sub(" ", cell).strip(" ") for cell in cells)


def _paragraph(element: Element, builder: Builder, levels: dict[str, int]) -> None:
    text = _text(element)
    outline = attribute(child(element, "pPr", "outlineLvl"), "val")
    level = levels.get(attribute(child(element, "pPr", "pStyle"), "val"))
    if level is None and outline.isdecimal() and int(outline) < _DEEPEST:
        level = int(outline) + 1
    if level is None:
        builder.add(text)
    else:
        builder.heading(level, text)


def _text(element: Element) -> str:
    """The text of an element; ``PAGE`` where Word began a page."""
    parts: list[str] = []
    stack = [element]
    while stack:
        one = stack.pop()
        name = local(one)
        if name == "t":
            parts.append(one.text or "")
        elif name in _SPACES:
            parts.append(_SPACES[name])
        elif name == "lastRenderedPageBreak":
            parts.append(PAGE)
        elif name not in _SKIPPED:
            if name == "p" and parts:
                parts.append("\n")
            stack.extend(reversed(one))
    return "".join(parts)
