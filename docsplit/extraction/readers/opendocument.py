"""ODT and ODP: paragraphs, lists, tables, notes and headings; a page of an ODP is a slide."""

import re
from collections import ChainMap
from collections.abc import Iterable, Mapping
from typing import BinaryIO
from xml.etree.ElementTree import Element

from docsplit.extraction.building import Builder, above
from docsplit.extraction.content import Content, Limits
from docsplit.extraction.readers.package import LEVELS, Counter, Level, Package, number, within

# comments, deleted text, what the file holds about its own form, and how to pronounce a word
_SKIPPED = {
    "annotation",
    "tracked-changes",
    "forms",
    "sequence-decls",
    "note-citation",
    "ruby-text",
}
# what stands apart from the words around it; a frame has a title and a description
_SHAPES = {"frame", "custom-shape", "g"}
_LINES = {"p", "h", *_SHAPES}
_STATED = {"title", "desc"}
_SPACES = {"tab": "\t", "line-break": "\n"}
_STYLE = "list-level-style-number"
# what is special about the text of a style, and how one states that it is raised
_HIDDEN, _RAISED = "hidden", "raised"
_ABOVE = re.compile(r"super|[1-9]\d*%")
_MOST_SPACES = 100
_GROUPS = {"table-header-rows", "table-rows", "table-row-group"}
# on each slide
_REPEATED = {"page-number", "date-time", "footer", "header", "page"}


def read(stream: BinaryIO, limits: Limits) -> Content:
    """The text of the document, without headers and footers."""
    package = Package(stream, limits, "content.xml", "OpenDocument")
    builder = Builder(limits)
    content, styles = package.xml("content.xml"), package.xml("styles.xml")
    lists = ChainMap(_lists(content), _lists(styles))
    outline = next(styles.iter("outline-style"), None)
    looks = _looks(styles) | _looks(content)
    text = _Text(builder, lists, _levels(outline, "outline-level-style"), looks)
    body = content.find("body")
    for part in body if body is not None else ():
        if part.tag == "presentation":
            for slide in part.iter("page"):
                builder.page()
                _slide(slide, text, builder)
        elif part.tag == "text":
            text.add(part)
    stated = {one.tag: one.text for one in package.xml("meta.xml").iter()}
    author = stated.get("initial-creator") or stated.get("creator")
    return builder.content(stated.get("title"), author, stated.get("creation-date"))


def _slide(slide: Element, text: "_Text", builder: Builder) -> None:
    """The title of a slide, which is a heading, its other frames and then its notes."""
    for shape in slide:
        if shape.get("class", "") == "title":
            builder.heading(1, " ".join(map(text.of, shape.iter("p"))))
    for shape in slide:
        if shape.tag == "notes":
            _slide(shape, text, builder)
        elif shape.get("class", "") not in {"title", *_REPEATED}:
            text.add(shape)


def _looks(part: Element) -> dict[str, str]:
    """What is special about the text of a style: ``HIDDEN`` or ``RAISED``."""
    found: dict[str, str] = {}
    for style in part.iter("style"):
        for own in style:
            if own.get("display") == "none":
                found[style.get("name", "")] = _HIDDEN
            elif _ABOVE.match(own.get("text-position", "")):
                found[style.get("name", "")] = _RAISED
    return found


def _lists(part: Element) -> dict[str, dict[int, Level]]:
    return {one.get("name", ""): _levels(one, _STYLE) for one in part.iter("list-style")}


def _levels(style: Element | None, kind: str) -> dict[int, Level]:
    """The levels of a style of lists that show numbers."""
    found: dict[int, Level] = {}
    for one in () if style is None else style.iter(kind):
        level, shown = number(one.get("level", "")), one.get("num-format", "")
        if shown and 0 < level <= LEVELS:
            first = level - min(level, number(one.get("display-levels", ""), 1)) + 1
            places = ".".join(f"%{place}" for place in range(first, level + 1))
            text = one.get("num-prefix", "") + places + one.get("num-suffix", "")
            found[level] = Level(text, shown, number(one.get("start-value", ""), 1))
    return found


class _Text:
    """Adds blocks to a builder.

    Args:
        builder: gets them.
        lists: levels of the lists with numbers, by the name of their style.
        outline: levels of the headings.
        looks: what is special about the text of styles.
    """

    def __init__(
        self,
        builder: Builder,
        lists: Mapping[str, dict[int, Level]],
        outline: dict[int, Level],
        looks: Mapping[str, str],
    ) -> None:
        self._builder = builder
        self._looks = looks
        self._counters = {name: Counter(levels) for name, levels in lists.items()}
        self._outline = Counter(outline)

    def add(self, elements: Iterable[Element], before: str = "") -> None:
        """Add elements, such as the children of one; ``before`` stands before the first text."""
        for element in elements:
            if self._is_hidden(element):
                continue
            match element.tag:
                case "h":
                    level = number(element.get("outline-level", ""), 1)
                    shown = "" if element.get("is-list-header", "") == "true" else before
                    counted = self._outline.next(level)
                    self._builder.heading(level, (shown or counted) + self.of(element))
                case "p":
                    self._builder.add(before + self.of(element))
                case "table":
                    self._builder.add(
                        "\n".join(map(self._row, within(element, "table-row", _GROUPS)))
                    )
                case "list":
                    self._list(element, "", 1)
                    continue
                case name if name not in _SKIPPED:
                    self.add(element, before)
            before = ""

    def _list(self, element: Element, style: str, level: int) -> None:
        style = element.get("style-name", "") or style
        counter = self._counters.get(style)
        goes_on = {element.get("continue-numbering", ""), element.get("continue-list", "")}
        if counter is not None and goes_on == {""}:
            counter.restart(level)
        for item in element:
            before = ""
            if counter is not None and item.tag == "list-item":
                start = item.get("start-value", "")
                before = counter.next(level, number(start) if start else None)
            for one in item:
                if one.tag == "list":
                    self._list(one, style, level + 1)
                else:
                    self.add([one], before)
                before = ""

    def _row(self, row: Element) -> str:
        return "\t".join(" ".join(self.of(cell).split()) for cell in row).rstrip("\t")

    def _is_hidden(self, element: Element) -> bool:
        stated = {element.get("display", ""), element.get("is-hidden", "")}
        look = self._looks.get(element.get("style-name", ""))
        return look == _HIDDEN or "none" in stated or "true" in stated

    def of(self, element: Element) -> str:
        """The text of a paragraph or a cell."""
        parts = [element.text or ""]
        lines = _LINES | _STATED if element.tag in _SHAPES else _LINES
        for one in element:
            name = one.tag
            if name in _SPACES:
                parts.append(_SPACES[name])
            elif name == "s":
                parts.append(" " * min(number(one.get("c", ""), 1), _MOST_SPACES))
            elif name == "note-body":
                parts.append(f" ({self.of(one).strip()}) ")
            elif name in _SKIPPED or self._is_hidden(one):
                pass
            elif name in lines:
                text = self.of(one).strip("\n")
                before = "\n" if text and any(parts) and not parts[-1].endswith("\n") else ""
                parts.append(f"{before}{text}\n" if text else "")
            elif self._looks.get(one.get("style-name", "")) == _RAISED:
                parts.append(above(self.of(one)))
            else:
                parts.append(self.of(one))
            parts += [one.tail] if one.tail else []
        return "".join(parts)
