"""DOCX and PPTX as accepted: paragraphs, tables, charts, diagrams, notes and headings."""

import re
from collections.abc import Callable, Iterable, Iterator
from io import BytesIO
from pathlib import PurePosixPath
from typing import BinaryIO
from xml.etree.ElementTree import Element

from docsplit.extraction.building import PAGE, Builder, above
from docsplit.extraction.content import Content, Limits
from docsplit.extraction.kinds import READERS, reader_of
from docsplit.extraction.readers.encoded import text_of as decoded
from docsplit.extraction.readers.package import (
    Lists,
    Package,
    inherited,
    is_on,
    number,
    symbol,
    text_of,
    value,
    within,
)

# of a series, as in Excel
_MOST_POINTS = 32_000


class Drawings:
    """The charts and diagrams that a part of a file shows, each added once.

    Args:
        package: of the file.
        name: of the part.
        builder: gets the texts.
    """

    def __init__(self, package: Package, name: str, builder: Builder) -> None:
        self._package = package
        self._builder = builder
        self._left = package.related(name, "/chart") | package.related(name, "/diagramData")

    def add(self, element: Element) -> None:
        """Add those that an element refers to."""
        for one in element.iter() if self._left else ():
            if one.tag in ("chart", "relIds"):
                self._add(self._left.keys() & one.attrib.values())

    def rest(self) -> None:
        """Add the others."""
        self._add(list(self._left))

    def _add(self, references: Iterable[str]) -> None:
        for reference in references:
            drawn = self._package.xml(self._left.pop(reference))
            if drawn.tag == "chartSpace":
                _chart(drawn, self._builder)
            else:
                self._builder.add("\n".join(map(paragraph, drawn.iter("p"))))


def paragraph(element: Element) -> str:
    """The text of a paragraph of DrawingML."""
    return text_of(element, _drawn)


def _drawn(element: Element) -> str | None:
    match element.tag:
        case "t":
            return element.text or ""
        case "br":
            return "\n"
        case "r" if value(element, "rPr", "baseline").strip("0").isdecimal():
            return above(text_of(element, _drawn))
    return None


def _chart(chart: Element, builder: Builder) -> None:
    """The title of a chart, and its values as a table with a row for each series."""
    title = chart.find("chart/title")
    builder.add("" if title is None else "\n".join(map(paragraph, title.iter("p"))))
    rows: list[str] = []
    former: list[str] = []
    for series in chart.iter("ser"):
        columns = _values(series, "cat", "xVal")
        if columns and columns != former:
            rows.append("\t".join(["", *columns]))
            former = columns
        name = " ".join(_values(series, "tx"))
        rows.append("\t".join([name, *_values(series, "val", "yVal")]).rstrip("\t"))
    builder.add("\n".join(rows))


def _values(series: Element, *names: str) -> list[str]:
    """The values of a part of a series that has one of some names, each in its place."""
    part = next((found for name in names if (found := series.find(name)) is not None), None)
    if part is None:
        return []
    # categories may have groups, the inmost ones first
    levels = [_points(level) for level in part.iter("lvl")] or [_points(part)]
    count = 1 + max((place for level in levels for place in level), default=-1)
    for groups in levels[1:]:
        for place in range(count):
            groups.setdefault(place, groups.get(place - 1, ""))
    levels.reverse()
    return [" ".join(level.get(place, "") for level in levels).strip() for place in range(count)]


def _points(part: Element) -> dict[int, str]:
    """Values by their places; a place without one is empty."""
    found = {}
    # a name may be a value without a place
    for point in list(part.iter("pt")) or [part]:
        place = number(point.get("idx", ""))
        held = point.find(".//v")
        if held is not None and place < _MOST_POINTS:
            found[place] = " ".join((held.text or "").split())
    return found


_MAIN = "word/document.xml"
# deleted text, the copy of a text box for older versions, and how to pronounce a word
_SKIPPED = {"del", "moveFrom", "Fallback", "pPr", "rPr", "rt", "sdtPr"}
_WRAPPERS = {"sdt", "sdtContent", "ins", "customXml"}
_SPACES = {
    "tab": "\t",
    "br": "\n",
    "cr": "\n",
    "noBreakHyphen": "-",
    "ptab": "\t",
    "lastRenderedPageBreak": PAGE,
}
_HEX = re.compile("[0-9A-Fa-f]{2,6}")
# how text looks; a run counts as raised from so many half points on
_HIDDEN, _RAISED, _LEAST_LIFT = "hidden", "raised", 3
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
    text = _Text(builder, styles, Lists(part("numbering"), styles), drawings)
    chunks = package.related(package.main, "/aFChunk")
    text.chunk = lambda name: _chunk(package, chunks.get(name, ""), builder, limits)
    if (body := package.xml(package.main).find("body")) is not None:
        if body.find(".//lastRenderedPageBreak") is not None:
            builder.page()
        text.add(body)
        drawings.rest()
    for notes in ("footnotes", "endnotes"):
        text.add(part(notes))
    return package.finished(builder)


def _heading(style: Element) -> int | None:
    """The level of the headings that have a style; 0 for body text, None if it states none."""
    name, outline = value(style, "name").lower(), value(style, "pPr/outlineLvl")
    if name == "title":
        return 1
    if outline.isdecimal():
        return _level(outline)
    return number(name[8:]) or None if name.startswith("heading ") else None


def _look(stated: Element | None) -> str:
    """What properties of text say: ``_HIDDEN``, ``_RAISED``, or ""."""
    if stated is None:
        return ""
    if is_on(stated.find("vanish")):
        return _HIDDEN
    is_raised = value(stated, "vertAlign") == "superscript"
    return _RAISED if is_raised or number(value(stated, "position")) >= _LEAST_LIFT else ""


def _chunk(package: Package, name: str, builder: Builder, limits: Limits) -> None:
    """Add a document of another kind that Word would take into this one."""
    kind = PurePosixPath(name.lower()).suffix
    content = BytesIO(package.content(name))
    if kind in READERS:
        builder.append(reader_of(kind)(content, limits))
    elif content.getvalue():
        builder.add(decoded(content.getvalue(), limits))


def _level(outline: str) -> int:
    """The level of a heading; 0 for body text."""
    return int(outline) + 1 if outline.isdecimal() and int(outline) < _DEEPEST else 0


class _Text:
    """Adds blocks to a builder.

    Args:
        builder: gets them.
        styles: the part that defines the styles.
        lists: number the paragraphs.
        drawings: of the document; each stands after its paragraph or table.
    """

    def __init__(self, builder: Builder, styles: Element, lists: Lists, drawings: Drawings) -> None:
        self._builder = builder
        self._levels = inherited(styles, _heading)
        self._looks = inherited(styles, lambda style: _look(style.find("rPr")) or None)
        self._lists = lists
        self._drawings = drawings
        self.chunk: Callable[[str], None] = lambda name: None
        # of paragraphs whose ends are deleted
        self._before = ""

    def add(self, parent: Element) -> None:
        """Add what is in an element."""
        for element in parent:
            match element.tag:
                case "p":
                    self._paragraph(element)
                    self._drawings.add(element)
                case "tbl":
                    rows = map(self._row, within(element, "tr", _WRAPPERS))
                    self._builder.add("\n".join(row for row in rows if row is not None))
                    self._drawings.add(element)
                case "altChunk":
                    self.chunk(element.get("id", ""))
                case name if name not in _SKIPPED:
                    # content controls, notes and insertions hold paragraphs
                    self.add(element)

    def _paragraph(self, element: Element) -> None:
        style = value(element, "pPr/pStyle")
        text = "" if self._looks.get(style) == _HIDDEN else text_of(element, self._shown)
        if element.find("pPr/rPr/del") is not None:
            # its end is deleted: the next one goes on
            self._before += text
            return
        text, self._before = self._before + text, ""
        if text.strip():
            # after what begins a page
            first = len(text) - len(text.lstrip(PAGE))
            text = text[:first] + self._lists.before(element) + text[first:]
        outline = value(element, "pPr/outlineLvl")
        if level := self._levels.get(style) or _level(outline):
            self._builder.heading(level, text)
        else:
            self._builder.add(text)

    def _row(self, row: Element) -> str | None:
        """The cells of a row; None if it is deleted."""
        if row.find("trPr/del") is not None:
            return None
        cells = [""] * min(number(value(row, "trPr/gridBefore")), _WIDEST)
        for cell in within(row, "tc", _WRAPPERS):
            cells.append(_BLANKS.sub(" ", text_of(cell, self._shown)).strip(" "))
            # the next cell stands in the column where the page shows it
            span = number(value(cell, "tcPr/gridSpan"), 1)
            cells += [""] * (min(span, _WIDEST) - 1)
        return "\t".join(cells).rstrip("\t ")

    def _shown(self, element: Element) -> str | None:
        """The text of an element as accepted; ``PAGE`` where Word began a page."""
        name = element.tag
        if name in _SKIPPED:
            return ""
        if name in _SPACES:
            return _SPACES[name]
        look = ""
        if name == "r":
            style = value(element, "rPr/rStyle")
            look = _look(element.find("rPr")) or self._looks.get(style, "")
        # of a formula, too
        if name == "sup" or look == _RAISED:
            return above(text_of(element, self._shown))
        match name:
            case "t":
                return element.text or ""
            case "r" if look == _HIDDEN:
                return ""
            case "den":
                return f"/{text_of(element, self._shown)}"
            case "sym":
                code = element.get("char", "")
                known = int(code, 16) if _HEX.fullmatch(code) else 0
                return symbol(element.get("font", ""), known)
            case "checkBox":
                stated = element.find("checked")
                return "☒" if is_on(element.find("default") if stated is None else stated) else "☐"
        return None


_PRESENTATION = "ppt/presentation.xml"
_TITLES = {"title", "ctrTitle"}
# the slide's number, its date, and what the notes repeat of the slide
_REPEATED = {"sldNum", "dt", "ftr", "hdr", "sldImg"}


def read_slides(stream: BinaryIO, limits: Limits) -> Content:
    """The text of the slides in their order; titles are headings."""
    package = Package(stream, limits, _PRESENTATION, "PPTX")
    builder = Builder(limits)
    parts = package.related(package.main, "/slide")
    for slide in package.xml(package.main).iter("sldId"):
        # two attributes are called id: that of the relationship begins with letters
        name = next((parts[value] for value in slide.attrib.values() if value in parts), "")
        builder.page()
        _shapes(package.xml(name), builder)
        Drawings(package, name, builder).rest()
        for notes in package.related(name, "/notesSlide").values():
            _shapes(package.xml(notes), builder)
    return package.finished(builder)


def _shapes(slide: Element, builder: Builder) -> None:
    """The title of a slide and then its other shapes, wherever the file has it."""
    shapes = [(shape, value(shape, ".//ph", "type")) for shape in _seen(slide)]
    for shape, kind in shapes:
        if kind in _TITLES:
            builder.heading(1, _lines(shape))
    for shape, kind in shapes:
        if shape.tag == "tbl":
            builder.add("\n".join(map(_slide_row, shape.iter("tr"))))
        elif kind not in _TITLES | _REPEATED:
            builder.add(_lines(shape))


def _seen(slide: Element) -> Iterator[Element]:
    """The shapes and tables of a slide, without the copies for older versions."""
    stack = [slide]
    while stack:
        one = stack.pop()
        if one.tag in ("sp", "tbl"):
            yield one
        elif one.tag != "Fallback":
            stack.extend(reversed(one))


def _lines(shape: Element) -> str:
    return "\n".join(map(paragraph, shape.iter("p")))


def _slide_row(row: Element) -> str:
    cells = (" ".join(map(paragraph, cell.iter("p"))) for cell in row.iter("tc"))
    return "\t".join(" ".join(cell.split()) for cell in cells)
