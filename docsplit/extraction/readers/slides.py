"""PPTX: the text of each slide, its charts and its notes; a page is a slide."""

from collections.abc import Iterator
from typing import BinaryIO
from xml.etree.ElementTree import Element

from docsplit.extraction.building import Builder
from docsplit.extraction.content import Content, Limits
from docsplit.extraction.office.drawings import Drawings, paragraph
from docsplit.extraction.office.package import Package, attribute, below, local

_MAIN = "ppt/presentation.xml"
_TITLES = {"title", "ctrTitle"}
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
    return "\n".join(map(paragraph, below(shape, "p")))


def _row(row: Element) -> str:
    cells = (" ".join(map(paragraph, below(cell, "p"))) for cell in below(row, "tc"))
    return "\t".join(" ".join(cell.split()) for cell in cells)
