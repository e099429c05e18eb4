"""HTML: the visible text, with headings, numbers of lists and rows of tables."""

import re
from collections.abc import Container, Iterator
from typing import BinaryIO

from selectolax.lexbor import LexborHTMLParser, LexborNode

from docsplit.extraction.building import Builder, raised
from docsplit.extraction.content import Content, Limits, UnreadableError
from docsplit.extraction.readers.encoded import text_of
from docsplit.extraction.readers.package import (
    Package,
    attribute,
    below,
    child,
    label,
    local,
    number,
    path,
)

HIDDEN = {
    "head",
    "script",
    "style",
    "template",
    "noscript",
    "svg",
    "math",
    "object",
    "iframe",
    "nav",
    "select",
    "button",
    "textarea",
    "-comment",
}
BLOCKS = {
    "address",
    "article",
    "aside",
    "blockquote",
    "body",
    "caption",
    "center",
    "dd",
    "details",
    "dialog",
    "div",
    "dl",
    "dt",
    "fieldset",
    "figcaption",
    "figure",
    "footer",
    "form",
    "header",
    "hr",
    "html",
    "legend",
    "li",
    "main",
    "ol",
    "p",
    "pre",
    "section",
    "summary",
    "table",
    "tbody",
    "tfoot",
    "thead",
    "ul",
}
CELLS = {"td", "th"}
# a table with one of them gives a page its form
_NESTED = "table, h1, h2, h3, h4, h5, h6, ul, ol, pre"
_BESIDE = "td + td, td + th, th + td, th + th"


def is_data(table: LexborNode) -> bool:
    """Whether cells stand beside each other, with nothing in them but text."""
    part = table.child
    while part is not None:
        # of the table itself the selector would find the table
        if part.css_first(_NESTED) is not None:
            return False
        part = part.next
    return table.css_first(_BESIDE) is not None


def line_of(top: LexborNode) -> str:
    """The text below a node in one line."""
    parts: list[str] = []
    for node, enters in events(top):
        if node.tag == "-text":
            parts.append(node.text_content or "" if enters else "")
        elif node.tag in BLOCKS or node.tag == "br":
            parts.append(" ")
    return " ".join("".join(parts).split())


def events(top: LexborNode, closed: Container[str] = HIDDEN) -> Iterator[tuple[LexborNode, bool]]:
    """Nodes below a node as the walk enters them and as it leaves them.

    Args:
        top: the node.
        closed: tags of nodes that the walk does not go into.
    """
    parents: list[LexborNode] = []
    node = top.child
    while node is not None or parents:
        if node is None:
            node = parents.pop()
        else:
            yield node, True
            opened = node.tag not in closed and not (node.tag == "table" and is_data(node))
            if opened and node.child is not None:
                parents.append(node)
                node = node.child
                continue
        yield node, False
        node = node.next


# of a table, what the walk for its rows does not go into
_DATA = HIDDEN | CELLS | {"caption"}
# columns of a table that one cell may span, and rows
_WIDEST, _HIGHEST = 100, 1000


def lines_of(table: LexborNode) -> list[str]:
    """The caption and the rows of a table, each cell in the column where the page shows it."""
    lines: list[str] = []
    # columns that a cell of a former row still takes, and for how many rows
    taken: dict[int, int] = {}
    for node, enters in events(table, _DATA):
        if node.tag == "caption" and enters:
            lines.append(line_of(node))
        elif node.tag == "tr" and enters:
            lines.append(_row(node, taken))
    return [line for line in lines if line]


def _row(row: LexborNode, taken: dict[int, int]) -> str:
    cells: list[str] = []

    def skip() -> None:
        while taken.get(len(cells), 0) > 0:
            taken[len(cells)] -= 1
            cells.append("")

    cell = row.child
    while cell is not None:
        if cell.tag in CELLS:
            skip()
            attributes = cell.attributes
            wide = min(max(1, number(attributes.get("colspan") or "", 1)), _WIDEST)
            high = min(number(attributes.get("rowspan") or "", 1), _HIGHEST)
            taken.update(dict.fromkeys(range(len(cells), len(cells) + wide), high - 1))
            cells += [line_of(cell), *[""] * (wide - 1)]
        cell = cell.next
    skip()
    return "\t".join(cells).rstrip("\t")


_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_BLANKS = re.compile(r"\s+")


class Walk:
    """Collects the text of a tree; goes through it in a loop, however deep it is."""

    def __init__(self, builder: Builder) -> None:
        self._builder = builder
        self._parts: list[str] = []
        self._pre = 0
        self._raised = 0
        self._level = 0
        # of each list around the place, the number and the style of the next item; None: no number
        self._lists: list[tuple[int, str] | None] = []
        self._before = ""

    def run(self, top: LexborNode) -> None:
        """Add the text below a node to the builder."""
        for node, enters in events(top):
            tag = node.tag
            if tag == "-text":
                self._say(node.text_content or "" if enters else "")
            elif tag == "sup":
                self._raised += 1 if enters else -1
            elif tag in _HEADINGS:
                self._end()
                self._level = _HEADINGS[tag] if enters else 0
            elif tag in ("br", "tr"):
                self._parts.append("\n" if enters else "")
            elif tag in CELLS:
                self._parts.append("" if enters else "\t")
            elif tag in BLOCKS:
                self._end()
                if tag == "pre":
                    self._pre += 1 if enters else -1
                elif tag in ("ol", "ul"):
                    self._list(node, enters=enters)
                elif tag == "li" and enters:
                    self._item(node)
                elif tag == "table" and enters and is_data(node):
                    self._builder.add("\n".join(lines_of(node)))
        self._end()

    def _say(self, text: str) -> None:
        if self._before and text.strip():
            self._parts.append(self._before)
            self._before = ""
        text = raised(text) if self._raised else text
        self._parts.append(text if self._pre else _BLANKS.sub(" ", text))

    def _end(self) -> None:
        text = "".join(self._parts)
        self._parts.clear()
        if not self._pre:
            text = "\n".join(line.strip() for line in text.split("\n")).strip()
        if self._level:
            self._builder.heading(self._level, text)
        else:
            self._builder.add(text)

    def _list(self, node: LexborNode, *, enters: bool) -> None:
        if not enters:
            self._lists.pop()
        elif node.tag == "ul":
            self._lists.append(None)
        else:
            start = number(node.attributes.get("start") or "", 1)
            self._lists.append((start, node.attributes.get("type") or "1"))
        self._before = ""

    def _item(self, node: LexborNode) -> None:
        self._before = ""
        if self._lists and (counted := self._lists[-1]) is not None:
            own = number(node.attributes.get("value") or "", counted[0])
            self._lists[-1] = own + 1, counted[1]
            self._before = f"{label(counted[1], own)}. "


_DECLARED = re.compile(rb"""<(?:meta|\?xml)[^>]*?(?:charset|encoding)\s*=\s*["']?([\w-]+)""", re.I)
_HEAD = 4096
_XML = re.compile(r"[\ufeff\s]*<\?xml\b")
# elements that have no content in HTML either
_VOID = "area|base|br|col|embed|hr|img|input|link|meta|param|source|track|wbr"
# no part may match the same characters as the next one, or hostile pages cost quadratic time
_ATTRIBUTES = r"""[^"'<>/]*(?:(?:"[^"<]*"|'[^'<]*'|/(?!>))[^"'<>/]*)*"""
_CLOSED = re.compile(
    rf"""<(?!(?:{_VOID})[\s/])(?P<name>[a-z][^\s"'<>/]*)(?=[\s/])(?P<attributes>{_ATTRIBUTES})/>"""
    # and what holds no elements
    r"|<!--.*?(?:-->|\Z)|<!\[CDATA\[.*?(?:\]\]>|\Z)"
    rf"|<(?P<raw>script|style|title|textarea|iframe)(?=[\s>]){_ATTRIBUTES}>.*?(?:</(?P=raw)|\Z)",
    re.I | re.S,
)
# what a browser or a reader of the screen does not show, or shows on every page of a site
_UNSEEN = (
    "[hidden]",
    "[style*='display:none' i]",
    "[style*='display: none' i]",
    *(f"[role='{role}']" for role in ("navigation", "search", "menu", "menubar", "toolbar")),
    # links to a heading, next to it
    "a.headerlink",
    "a.anchor",
)
# outside of the main part of a page
_ASIDE = "body > footer, body > aside, body > [role='contentinfo'], body > [role='complementary']"
_MAIN = "main, [role='main']"


def read(stream: BinaryIO, limits: Limits) -> Content:
    """The text of the page without scripts, styles, navigation and controls."""
    return content_of(stream.read(), limits)


def read_xhtml(stream: BinaryIO, limits: Limits) -> Content:
    """The same of a page that is XML, even if it does not say so."""
    return content_of(stream.read(), limits, xml=True)


def content_of(
    content: bytes, limits: Limits, charset: str | None = None, *, xml: bool = False
) -> Content:
    """The same of some bytes.

    Args:
        content: of the page.
        limits: of its text.
        charset: the encoding, as a header states it; it counts before what the page states.
        xml: a slash closes an element, as in a page that begins with ``<?xml``.
    """
    found = _DECLARED.search(content[:_HEAD])
    declared = found[1].decode() if found else None
    # programs write us-ascii when they do not know
    if charset in (None, "us-ascii"):
        charset = declared or charset
    text = text_of(content, limits, charset)
    if xml or _XML.match(text):
        text = _CLOSED.sub(_pair, text)
    tree = LexborHTMLParser(text)
    _remove(tree, ", ".join(_UNSEEN))
    if tree.css_first(_MAIN) is not None:
        _remove(tree, _ASIDE)
    builder = Builder(limits)
    if tree.body is not None:
        Walk(builder).run(tree.body)
    title = tree.css_first("head > title")
    return builder.content(
        title.text() if title else None,
        _meta(tree, "author", "dc.creator", "article:author", "citation_author"),
        _meta(tree, "date", "dc.date", "article:published_time", "citation_publication_date"),
    )


def _pair(found: re.Match[str]) -> str:
    """An element of XML without content, as HTML writes it: its parser ignores the slash."""
    name = found["name"]
    return f"<{name}{found['attributes']}></{name}>" if name else found[0]


def _meta(tree: LexborHTMLParser, *names: str) -> str | None:
    for node in tree.css("meta"):
        named = node.attributes.get("name") or node.attributes.get("property") or ""
        if named.lower() in names and node.attributes.get("content"):
            return node.attributes["content"]
    return None


def _remove(tree: LexborHTMLParser, selector: str) -> None:
    found = {node.mem_id: node for node in tree.css(selector) if node.tag not in ("html", "body")}
    # a removed node takes those below it along
    outermost = [node for node in found.values() if not _is_below(node, found)]
    for node in outermost:
        node.decompose()


def _is_below(node: LexborNode, others: Container[int]) -> bool:
    above = node.parent
    while above is not None and above.mem_id not in others:
        above = above.parent
    return above is not None


_CONTAINER = "META-INF/container.xml"
_LOCKED = "META-INF/encryption.xml"


def read_book(stream: BinaryIO, limits: Limits) -> Content:
    """The text of the parts in the order of the spine."""
    package = Package(stream, limits, _CONTAINER, "EPUB")
    main = attribute(next(below(package.xml(_CONTAINER), "rootfile"), None), "full-path")
    book = package.xml(main)
    folder = main.rpartition("/")[0]
    held = {
        attribute(item, "id"): path(folder, attribute(item, "href"))
        for item in below(book, "item")
        if not attribute(item, "media-type").startswith("image/")
    }
    # fonts may be encrypted in any book
    locked = {
        path("", attribute(one, "URI")) for one in below(package.xml(_LOCKED), "CipherReference")
    }
    builder = Builder(limits)
    for item in below(book, "itemref"):
        name = held.get(attribute(item, "idref"), "")
        if name in locked:
            raise UnreadableError("encrypted; save it without protection")
        builder.append(content_of(package.content(name), limits, xml=True))
    metadata = child(book, "metadata")
    stated: dict[str, str] = {}
    for one in metadata if metadata is not None else ():
        stated.setdefault(local(one), one.text or "")
    return builder.content(stated.get("title"), stated.get("creator"), stated.get("date"))
