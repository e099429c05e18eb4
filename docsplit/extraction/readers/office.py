"""TODO."""

import re
from collections.abc import Callable, Container, Iterator, Mapping
from io import BytesIO
from pathlib import PurePosixPath
from typing import BinaryIO
from xml.etree.ElementTree import Element

from docsplit.extraction.building import PAGE, Builder, above
from docsplit.extraction.content import Content, Limits
from docsplit.extraction.kinds import READERS, reader_of
from docsplit.extraction.readers.encoded import text_of
from docsplit.extraction.readers.package import (
    Lists,
    Package,
    attribute,
    below,
    child,
    is_on,
    lineages,
    local,
    number,
    symbol,
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
        self._charts = package.related(name, "/chart")
        self._left = self._charts | package.related(name, "/diagramData")

    def add(self, element: Element) -> None:
        """Add those that an element refers to."""
        if self._left:
            for one in element.iter():
                for value in one.attrib.values() if local(one) in ("chart", "relIds") else ():
                    self._add(value)

    def rest(self) -> None:
        """Add the others."""
        for reference in list(self._left):
            self._add(reference)

    def _add(self, reference: str) -> None:
        part = self._left.pop(reference, None)
        if part is None:
            return
        drawn = self._package.xml(part)
        if reference in self._charts:
            _chart(drawn, self._builder)
        else:
            self._builder.add("\n".join(map(paragraph, below(drawn, "p"))))


def paragraph(element: Element) -> str:
    """The text of a paragraph of DrawingML."""
    raised = {
        text
        for run in below(element, "r")
        if attribute(child(run, "rPr"), "baseline").strip("0").isdecimal()
        for text in below(run, "t")
    }
    return "".join(
        "\n" if local(one) == "br" else above(one.text or "") if one in raised else one.text or ""
        for one in element.iter()
        if local(one) in ("t", "br")
    )


def _chart(chart: Element, builder: Builder) -> None:
    """The title of a chart, and its values as a table with a row for each series."""
    title = child(chart, "chart", "title")
    builder.add("" if title is None else "\n".join(map(paragraph, below(title, "p"))))
    rows: list[str] = []
    former: list[str] = []
    for series in below(chart, "ser"):
        columns = _values(series, "cat", "xVal")
        if columns and columns != former:
            rows.append("\t".join(["", *columns]))
            former = columns
        name = " ".join(_values(series, "tx"))
        rows.append("\t".join([name, *_values(series, "val", "yVal")]).rstrip("\t"))
    builder.add("\n".join(rows))


def _values(series: Element, *names: str) -> list[str]:
    """The values of a part of a series that has one of some names, each in its place."""
    part = next((found for name in names if (found := child(series, name)) is not None), None)
    if part is None:
        return []
    # categories may have groups, the inmost ones first
    levels = [_points(level) for level in below(part, "lvl")] or [_points(part)]
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
    for point in list(below(part, "pt")) or [part]:
        place = number(attribute(point, "idx"))
        value = next(below(point, "v"), None)
        if value is not None and place < _MOST_POINTS:
            found[place] = " ".join((value.text or "").split())
    return found


_MAIN = "word/document.xml"
# deleted text, the copy of a text box for older versions, and how to pronounce a word
_SKIPPED = {"del", "moveFrom", "Fallback", "pPr", "rPr", "rt", "sdtPr"}
_WRAPPERS = {"sdt", "sdtContent", "ins", "customXml"}
_SPACES = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-", "ptab": "\t"}
# these, too, are shown: symbols, boxes of old forms, and the beginning of a page
_SHOWN = {"sym", "checkBox", "lastRenderedPageBreak"}
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
    text = _Text(builder, _levels(styles), Lists(part("numbering"), styles), drawings)
    text.looks = _looks(styles)
    chunks = package.related(package.main, "/aFChunk")
    text.chunk = lambda name: _chunk(package, chunks.get(name, ""), builder, limits)
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


def _looks(styles: Element) -> dict[str, str]:
    """What is special about the text of styles, or of those that they are based on."""
    own = {
        attribute(style, "styleId"): look
        for style in below(styles, "style")
        if (look := _look(child(style, "rPr")))
    }
    return {
        name: look
        for name, line in lineages(styles).items()
        if (look := next((own[one] for one in line if one in own), ""))
    }


def _look(stated: Element | None) -> str:
    """What properties of text say: ``_HIDDEN``, ``_RAISED``, or ""."""
    if stated is None:
        return ""
    if is_on(child(stated, "vanish")):
        return _HIDDEN
    is_raised = attribute(child(stated, "vertAlign"), "val") == "superscript"
    lift = attribute(child(stated, "position"), "val")
    return _RAISED if is_raised or number(lift) >= _LEAST_LIFT else ""


def _chunk(package: Package, name: str, builder: Builder, limits: Limits) -> None:
    """Add a document of another kind that Word would take into this one."""
    kind = PurePosixPath(name.lower()).suffix
    content = BytesIO(package.content(name))
    if kind in READERS:
        builder.append(reader_of(kind)(content, limits))
    elif content.getvalue():
        builder.add(text_of(content.getvalue(), limits))


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
        self.looks: Mapping[str, str] = {}
        self.chunk: Callable[[str], None] = lambda name: None
        # of paragraphs whose ends are deleted
        self._before = ""

    def add(self, parent: Element) -> None:
        """Add what is in an element."""
        for element in parent:
            match local(element):
                case "p":
                    self._paragraph(element)
                    self._drawings.add(element)
                case "tbl":
                    rows = (_row(row, self.looks) for row in _below(element, {"tr"}))
                    self._builder.add("\n".join(row for row in rows if row is not None))
                    self._drawings.add(element)
                case "altChunk":
                    self.chunk(attribute(element, "id"))
                case name if name not in _SKIPPED:
                    # content controls, notes and insertions hold paragraphs
                    self.add(element)

    def _paragraph(self, element: Element) -> None:
        style = attribute(child(element, "pPr", "pStyle"), "val")
        text = "" if self.looks.get(style) == _HIDDEN else _text(element, self.looks)
        if child(element, "pPr", "rPr", "del") is not None:
            # its end is deleted: the next one goes on
            self._before += text
            return
        text, self._before = self._before + text, ""
        if text.strip():
            # after what begins a page
            first = len(text) - len(text.lstrip(PAGE))
            text = text[:first] + self._lists.before(element) + text[first:]
        outline = attribute(child(element, "pPr", "outlineLvl"), "val")
        level = self._levels.get(style)
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


def _row(row: Element, looks: Mapping[str, str]) -> str | None:
    """The cells of a row; None if it is deleted."""
    cells: list[str] = []
    for cell in _below(row, {"trPr", "tc"}):
        if local(cell) == "trPr":
            if child(cell, "del") is not None:
                return None
            before = number(attribute(child(cell, "gridBefore"), "val"))
            cells += [""] * min(before, _WIDEST)
            continue
        cells.append(_BLANKS.sub(" ", _text(cell, looks)).strip(" "))
        # the next cell stands in the column where the page shows it
        span = number(attribute(child(cell, "tcPr", "gridSpan"), "val"), 1)
        cells += [""] * (min(span, _WIDEST) - 1)
    return "\t".join(cells).rstrip("\t ")


def _text(element: Element, looks: Mapping[str, str]) -> str:
    """The text of an element as accepted; ``PAGE`` where Word began a page.

    Args:
        element: a paragraph, a cell or a part of one.
        looks: of styles; see ``_looks``.
    """
    parts: list[str] = []
    stack: list[Element | None] = [element]
    # whether a paragraph within, such as one of a text box, began or ended
    apart = False
    while stack:
        one = stack.pop()
        name = "" if one is None else local(one)
        if one is None:
            apart = True
        elif name == "t" or name in _SPACES or name in _SHOWN:
            if apart and parts:
                parts.append("\n")
            apart = False
            parts.append(one.text or "" if name == "t" else _SPACES.get(name) or _shown(name, one))
        elif name == "r" and one is not element:
            stated = child(one, "rPr")
            style = attribute(child(one, "rPr", "rStyle"), "val")
            look = _look(stated) or looks.get(style, "")
            if look == _RAISED:
                parts.append(above(_text(one, looks)))
            elif look != _HIDDEN:
                stack.extend(reversed(one))
        elif name == "sup" and one is not element:
            # of a formula
            parts.append(above(_text(one, looks)))
        elif name not in _SKIPPED:
            parts.append("/" if name == "den" else "")
            if name == "p" and one is not element:
                apart = True
                stack.append(None)
            stack.extend(reversed(one))
    return "".join(parts)


def _shown(name: str, element: Element) -> str:
    """What Word draws for an element without text."""
    if name == "sym":
        code = attribute(element, "char")
        return symbol(attribute(element, "font"), int(code, 16) if _HEX.fullmatch(code) else 0)
    if name == "checkBox":
        stated = child(element, "checked")
        return "☒" if is_on(child(element, "default") if stated is None else stated) else "☐"
    return PAGE


_PRESENTATION = "ppt/presentation.xml"
_TITLES = {"title", "ctrTitle"}
# the slide's number, its date, and what the notes repeat of the slide
_REPEATED = {"sldNum", "dt", "ftr", "hdr", "sldImg"}


def read_slides(stream: BinaryIO, limits: Limits) -> Content:
    """The text of the slides in their order; titles are headings."""
    package = Package(stream, limits, _PRESENTATION, "PPTX")
    builder = Builder(limits)
    parts = package.related(package.main, "/slide")
    for slide in below(package.xml(package.main), "sldId"):
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
    shapes = [(shape, attribute(next(below(shape, "ph"), None), "type")) for shape in _seen(slide)]
    for shape, kind in shapes:
        if kind in _TITLES:
            builder.heading(1, _lines(shape))
    for shape, kind in shapes:
        if local(shape) == "tbl":
            builder.add("\n".join(map(_slide_row, below(shape, "tr"))))
        elif kind not in _TITLES | _REPEATED:
            builder.add(_lines(shape))


def _seen(slide: Element) -> Iterator[Element]:
    """The shapes and tables of a slide, without the copies for older versions."""
    stack = [slide]
    while stack:
        one = stack.pop()
        if local(one) in ("sp", "tbl"):
            yield one
        elif local(one) != "Fallback":
            stack.extend(reversed(one))


def _lines(shape: Element) -> str:
    return "\n".join(map(paragraph, below(shape, "p")))


def _slide_row(row: Element) -> str:
    cells = (" ".join(map(paragraph, below(cell, "p"))) for cell in below(row, "tc"))
    return "\t".join(" ".join(cell.split()) for cell in cells)
