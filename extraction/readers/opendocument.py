"""ODT: paragraphs, lists, tables, notes and headings."""

from typing import BinaryIO
from xml.etree.ElementTree import Element

from extraction.building import Builder
from extraction.content import Content, Limits
from extraction.readers.package import Package, attribute, child, local

# comments, deleted text, and what the file holds about its own form
_SKIPPED = {"annotation", "tracked-changes", "forms", "sequence-decls", "note-citation"}
_SPACES = {"tab": "\t", "line-break": "\n"}


def read(stream: BinaryIO, limits: Limits) -> Content:
    """The text of the document, without headers and footers."""
    package = Package(stream, limits, "content.xml", "ODT")
    builder = Builder(limits)
    body = child(package.xml("content.xml"), "body", "text")
    if body is not None:
        _blocks(body, builder)
    stated = {local(one): one.text for one in package.xml("meta.xml").iter()}
    author = stated.get("initial-creator") or stated.get("creator")
    return builder.content(stated.get("title"), author, stated.get("creation-date"))


def _blocks(parent: Element, builder: Builder) -> None:
    for element in parent:
        match local(element):
            case "h":
                level = attribute(element, "outline-level")
                builder.heading(int(level) if level.isdecimal() else 1, _text(element))
            case "p":
                builder.add(_text(element))
            case "table":
                builder.add("\n".join(map(_row, _rows(element))))
            case name if name not in _SKIPPED:
                _blocks(element, builder)


def _rows(parent: Element) -> list[Element]:
    found = []
    for element in parent:
        if local(element) == "table-row":
            found.append(element)
        elif local(element) in ("table-header-rows", "table-rows", "table-row-group"):
            found += _rows(element)
    return found


def _row(row: Element) -> str:
    return "\t".join(" ".join(_text(cell).split()) for cell in row)


def _text(element: Element) -> str:
    parts = [element.text or ""]
    for one in element:
        name = local(one)
        if name in _SPACES:
            parts.append(_SPACES[name])
        elif name == "s":
            count = attribute(one, "c")
            parts.append(" " * min(int(count) if count.isdecimal() else 1, 100))
        elif name == "note-body":
            parts.append(f" ({_text(one).strip()}) ")
        elif name not in _SKIPPED:
            parts.append(_text(one) + ("\n" if name in ("p", "h") else ""))
        parts.append(one.tail or "")
    return "".join(parts)
