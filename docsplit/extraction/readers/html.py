"""HTML: the visible text, with headings, numbers of lists and rows of tables."""

import re
from collections.abc import Container
from typing import BinaryIO

from selectolax.lexbor import LexborHTMLParser, LexborNode

from docsplit.extraction.building import Builder
from docsplit.extraction.content import Content, Limits
from docsplit.extraction.html.text import Walk
from docsplit.extraction.readers.encoded import text_of

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
