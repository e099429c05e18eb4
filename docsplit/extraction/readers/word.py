"""DOCX: paragraphs, lists, tables, notes, headings, and pages as Word last laid them out."""

import re
from collections.abc import Container, Iterator, Mapping
from typing import BinaryIO
from xml.etree.ElementTree import Element

from docsplit.extraction.building import PAGE, Builder, raised
from docsplit.extraction.content import Content, Limits
from docsplit.extraction.office.drawings import Drawings
from docsplit.extraction.office.package import Package, attribute, below, child, local, number
from docsplit.extraction.office.word_lists import Lists, lineages

_MAIN = "word/document.xml"
# deleted text, the copy of a text box for older versions, and how to pronounce a word
_SKIPPED = {"del", "moveFrom", "Fallback", "pPr", "rPr", "rt"}
_WRAPPERS = {"sdt", "sdtContent", "ins", "customXml"}
_SPACES = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-", "ptab": "\t"}
_DEEPEST = 9
# columns of a table that one cell may span
_WIDEST = 100
_BLANKS = re.compile(r"\s+")


def read(stream: BinaryIO, limits: Limits) -> Content:
    """The text of the document, its charts and diagrams, then its notes; no headers, no footers."""
    package = Package(stream, limits, _MAIN, "DOCX")

    def part(name: str) -> Element:
        stated = package.related(package.main, f"/{name}").values()
        return package.xml(next(iter(stated), f"word/{name}.xml"))

    styles = part("styles")
    builder = Builder(limits)
    drawings = Drawings(package, package.main, builder)
    text = _Text(builder, _levels(styles), Lists(part("numbering"), styles), drawings)
    body = child(package.xml(package.main), "body")
    if body is not None:
        if next(below(body, "lastRenderedPageBreak"), None) is not None:
            builder.page()
        text.add(body)
        drawings.rest()
    for notes in ("footnotes", "endnotes"):
        text.add(part(notes))
    return package.finished(builder)


def _levels(styles: Element) -> dict[str, int]:
    """Levels of headings by the id of the style, or of one that it is based on."""
    own: dict[str, int | None] = {}
    for style in below(styles, "style"):
        name = attribute(child(style, "name"), "val").lower()
        outline = attribute(child(style, "pPr", "outlineLvl"), "val")
        if name == "title":
            own[attribute(style, "styleId")] = 1
        elif outline.isdecimal():
            own[attribute(style, "styleId")] = _level(outline)
        elif name.startswith("heading ") and name[8:].isdecimal():
            own[attribute(style, "styleId")] = int(name[8:])
    found = {}
    for name, line in lineages(styles).items():
        level = next((own[one] for one in line if one in own), None)
        if level is not None:
            found[name] = level
    return found


def _level(outline: str) -> int | None:
    """The level of a heading; None for body text."""
    return int(outline) + 1 if outline.isdecimal() and int(outline) < _DEEPEST else None


class _Text:
    """Adds blocks to a builder.

    Args:
        builder: gets them.
        levels: of headings, by the id of the style.
        lists: number the paragraphs.
        drawings: of the document; each stands after its paragraph or table.
    """

    def __init__(
        self, builder: Builder, levels: Mapping[str, int], lists: Lists, drawings: Drawings
    ) -> None:
        self._builder = builder
        self._levels = levels
        self._lists = lists
        self._drawings = drawings

    def add(self, parent: Element) -> None:
        """Add what is in an element."""
        for element in parent:
            match local(element):
                case "p":
                    self._paragraph(element)
                    self._drawings.add(element)
                case "tbl":
                    self._builder.add("\n".join(map(_row, _below(element, {"tr"}))))
                    self._drawings.add(element)
                case name if name not in _SKIPPED:
                    # content controls, notes and insertions hold paragraphs
                    self.add(element)

    def _paragraph(self, element: Element) -> None:
        text = _text(element)
        if text.strip():
            # after what begins a page
            first = len(text) - len(text.lstrip(PAGE))
            text = text[:first] + self._lists.before(element) + text[first:]
        outline = attribute(child(element, "pPr", "outlineLvl"), "val")
        level = self._levels.get(attribute(child(element, "pPr", "pStyle"), "val"))
        level = _level(outline) if level is None else level
        if level is None:
            self._builder.add(text)
        else:
            self._builder.heading(level, text)


def _below(parent: Element, names: Container[str]) -> Iterator[Element]:
    """The rows of a table or the cells of a row, without those of tables in its cells."""
    for element in parent:
        if local(element) in names:
            yield element
        elif local(element) in _WRAPPERS:
            yield from _below(element, names)


def _row(row: Element) -> str:
    cells: list[str] = []
    for cell in _below(row, {"trPr", "tc"}):
        if local(cell) == "trPr":
            before = number(attribute(child(cell, "gridBefore"), "val"))
            cells += [""] * min(before, _WIDEST)
            continue
        cells.append(_BLANKS.sub(" ", _text(cell)).strip(" "))
        # the next cell stands in the column where the page shows it
        span = number(attribute(child(cell, "tcPr", "gridSpan"), "val"), 1)
        cells += [""] * (min(span, _WIDEST) - 1)
    return "\t".join(cells).rstrip("\t ")


def _text(element: Element) -> str:
    """The text of an element; ``PAGE`` where Word began a page."""
    parts: list[str] = []
    stack: list[Element | None] = [element]
    # whether a paragraph within, such as one of a text box, began or ended
    apart = False
    while stack:
        one = stack.pop()
        name = "" if one is None else local(one)
        if one is None:
            apart = True
        elif name == "t" or name in _SPACES or name == "lastRenderedPageBreak":
            if apart and parts:
                parts.append("\n")
            apart = False
            parts.append(one.text or "" if name == "t" else _SPACES.get(name, PAGE))
        elif (
            one is not element and attribute(child(one, "rPr", "vertAlign"), "val") == "superscript"
        ):
            parts.append(raised(_text(one)))
        elif name not in _SKIPPED:
            if name == "p" and one is not element:
                apart = True
                stack.append(None)
            stack.extend(reversed(one))
    return "".join(parts)
