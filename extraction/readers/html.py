"""HTML: the visible text, with headings."""

import re
from collections.abc import Iterator
from typing import BinaryIO

from selectolax.lexbor import LexborHTMLParser, LexborNode

from extraction.building import Builder
from extraction.content import Content, Limits
from extraction.readers.encoded import text_of

_DECLARED = re.compile(rb"""<(?:meta|\?xml)[^>]*?(?:charset|encoding)\s*=\s*["']?([\w-]+)""", re.I)
_HEAD = 4096
_HIDDEN = {
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
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_BLOCKS = {
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
_CELLS = {"td", "th"}


def read(stream: BinaryIO, limits: Limits) -> Content:
    """The text of the page without scripts, styles, navigation and controls."""
    return content_of(stream.read(), limits)


def content_of(content: bytes, limits: Limits) -> Content:
    """The same of some bytes."""
    found = _DECLARED.search(content[:_HEAD])
    declared = found[1].decode() if found else None
    tree = LexborHTMLParser(text_of(content, limits, declared))
    builder = Builder(limits)
    if tree.body is not None:
        _Walk(builder).run(tree.body)
    title = tree.css_first("head > title")
    return builder.content(
        title.text() if title else None,
        _meta(tree, "author", "dc.creator", "article:author", "citation_author"),
        _meta(tree, "date", "dc.date", "article:published_time", "citation_publication_date"),
    )


def _meta(tree: LexborHTMLParser, *names: str) -> str | None:
    for node in tree.css("meta"):
        named = node.attributes.get("name") or node.attributes.get("property") or ""
        if named.lower() in names and node.attributes.get("content"):
            return node.attributes["content"]
    return None


class _Walk:
    """Collects the text of a tree; goes through it in a loop, however deep it is."""

    def __init__(self, builder: Builder) -> None:
        self._builder = builder
        self._parts: list[str] = []
        self._pre = 0
        self._level = 0

    def run(self, top: LexborNode) -> None:
        """Add the text below a node to the builder."""
        for node, enters in _events(top):
            tag = node.tag
            if tag == "-text":
                self._say(node.text_content or "" if enters else "")
            elif tag in _HEADINGS:
                self._end()
                self._level = _HEADINGS[tag] if enters else 0
            elif tag in ("br", "tr"):
                self._parts.append("\n" if enters else "")
            elif tag in _CELLS:
                self._parts.append("" if enters else "\t")
            elif tag in _BLOCKS:
                self._end()
                if tag == "pre":
                    self._pre += 1 if enters else -1
        self._end()

    def _say(self, text: str) -> None:
        self._parts.append(text if self._pre else re.sub(r"\s+", " ", text))

    def _end(self) -> None:
        text = "".join(self._parts)
        self._parts.clear()
        if not self._pre:
            text = "\n".join(line.strip() for line in text.split("\n")).strip()
        if self._level:
            self._builder.heading(self._level, text)
        else:
            self._builder.add(text)


def _events(top: LexborNode) -> Iterator[tuple[LexborNode, bool]]:
    """Nodes below a node as the walk enters them and as it leaves them."""
    parents: list[LexborNode] = []
    node = top.child
    while node is not None or parents:
        if node is None:
            node = parents.pop()
        else:
            yield node, True
            if node.tag not in _HIDDEN and node.child is not None:
                parents.append(node)
                node = node.child
                continue
        yield node, False
        node = node.next
