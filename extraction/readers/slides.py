"""PPTX: the text of each slide, its charts and its notes; a page is a slide."""

from collections.abc import Iterator
from typing import BinaryIO
from xml.etree.ElementTree import Element

from extraction.building import Builder
from extraction.content import Content, Limits
from extraction.office.package import Package, attribute, below, child, local, number

_MAIN = "ppt/presentation.xml"
_TITLES = {"title", "ctrTitle"}
# of a series, as in Excel
_MOST_POINTS = 32_000
# the slide's number, its date, and what the notes repeat of the slide
_REPEATED = {"sldNum", "dt", "ftr", "hdr", "sldImg"}


def read(stream: BinaryIO, limits: Limits) -> Content:
    """The text of the slides in their order; titles are headings."""
    package = Package(stream, limits, _MAIN, "PPTX")
    builder = Builder(limits)
    parts = package.related(package.main, "/slide")
    for slide in below(package.xml(package.main), "sldId"):
        # two attributes are called id: that of the relationship begins with letters
        name = next((parts[value] for value in slide.attrib.values() if value in parts), "")
        builder.page()
        _shapes(package.xml(name), builder)
        for chart in package.related(name, "/chart").values():
            _chart(package.xml(chart), builder)
        for diagram in package.related(name, "/diagramData").values():
            builder.add("\n".join(map(_paragraph, below(package.xml(diagram), "p"))))
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
            builder.add("\n".join(map(_row, below(shape, "tr"))))
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
    return "\n".join(map(_paragraph, below(shape, "p")))


def _chart(chart: Element, builder: Builder) -> None:
    """The title of a chart, and its values as a table with a row for each series."""
    title = child(chart, "chart", "title")
    builder.add("" if title is None else "\n".join(map(_paragraph, below(title, "p"))))
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


def _row(row: Element) -> str:
    cells = (" ".join(map(_paragraph, below(cell, "p"))) for cell in below(row, "tc"))
    return "\t".join(" ".join(cell.split()) for cell in cells)


def _paragraph(paragraph: Element) -> str:
    return "".join(
        "\n" if local(one) == "br" else one.text or ""
        for one in paragraph.iter()
        if local(one) in ("t", "br")
    )
