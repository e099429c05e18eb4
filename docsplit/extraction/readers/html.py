"""HTML, EPUB and articles in XML: the visible text, with headings, lists and rows of tables."""

import html
import re
from collections.abc import Container, Iterator
from itertools import islice
from typing import BinaryIO
from xml.etree.ElementTree import Element, tostring

from selectolax.lexbor import LexborHTMLParser, LexborNode

from docsplit.extraction.building import DOWN, UP, Builder
from docsplit.extraction.content import Content, Limits, UnreadableError
from docsplit.extraction.readers.encoded import text_of
from docsplit.extraction.readers.package import Package, label, number, path, tree, value


def _tags(names: str) -> frozenset[str]:
    return frozenset(names.split())


_HIDDEN = _tags(
    "head script style template noscript svg object iframe nav select button textarea rt rp rtc"
    " annotation annotation-xml -comment"
)
_BLOCKS = _tags(
    "address article aside blockquote body caption center dd details dialog div dl dt fieldset"
    " figcaption figure footer form header hr html legend li main ol p pre section summary table"
    " tbody tfoot thead ul"
)
_CELLS = _tags("td th")
# of a table, what the walk for its rows does not go into
_DATA = _HIDDEN | _CELLS | {"caption"}
# a table with one of them gives a page its form
_NESTED = "table, h1, h2, h3, h4, h5, h6, ul, ol, pre"
_BESIDE = "td + td, td + th, th + td, th + th"
# columns of a table that one cell may span, and rows
_WIDEST, _HIGHEST = 100, 1000
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_BLANKS = re.compile(r"\s+")
_DECLARED = re.compile(rb"""<(?:meta|\?xml)[^>]*?(?:charset|encoding)\s*=\s*["']?([\w-]+)""", re.I)
_HEAD = 4096
# of elements of formulas
_PREFIX = re.compile(r"<(/?)(?:m|mml):(?=\w)")
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
_UNSEEN = ", ".join(
    (
        "[hidden]",
        "[style*='display:none' i]",
        "[style*='display: none' i]",
        *(f"[role='{role}']" for role in ("navigation", "search", "menu", "menubar", "toolbar")),
        # an image of a formula whose MathML follows or precedes it
        ".katex-html",
    )
)
# links to a heading, next to it
_PERMALINKS = "a.headerlink, a.anchor, a.permalink, a.anchor-link, a[href^='#']"
_NO_WORDS = re.compile(r"[\W_]*|link|permalink|anchor", re.I)
_FOOTNOTE = re.compile(r"[*†‡§]+")
# buttons whose words head what they show
_OPENING = ", ".join(
    [
        *(f"{tag} button" for tag in (*_HEADINGS, "dt", "summary", "legend", "[role='heading']")),
        "button[aria-expanded][aria-controls]",
    ]
)
_LEAST_WORDS = 3
# outside of the main part of a page
_ASIDE = "body > footer, body > aside, body > [role='contentinfo'], body > [role='complementary']"
_MAIN = "main, [role='main']"
_CONTAINER = "META-INF/container.xml"
_LOCKED = "META-INF/encryption.xml"
# elements of articles (JATS) as HTML names them, those without text, and those that are blocks
_NAMES = {
    "list": "ul", "list-item": "li", "disp-quote": "blockquote", "italic": "i", "bold": "b",
    "fig": "figure", "break": "br", "def-list": "dl", "term": "dt", "def": "dd", "fn": "p",
    "preformat": "pre", "code": "pre",
}  # fmt: skip
_SAME = set(_NAMES) | _tags(
    "p sup sub table thead tbody tfoot tr td th caption math semantics annotation mrow mi mn mo"
    " mtext mfrac msup msub msubsup mover munder msqrt mroot mtable mtr mtd mstyle mspace"
)
_OMITTED = _tags("article-id object-id journal-meta tex-math alternatives-graphic contrib-id email")
_PARTS = _tags(
    "abstract body back sec ref ack app fn-group table-wrap boxed-text disp-formula title"
    " sub-article response statement"
)
_SECTIONS = _tags("sec abstract ack app ref-list")
_TITLE = "title-group/article-title"
_SPANS = {"colspan", "rowspan"}
# an element that means nothing in HTML and in formulas
_INLINE = "x-part"


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
        text = _CLOSED.sub(_pair, _PREFIX.sub(r"<\1", text))
    tree = LexborHTMLParser(text)
    # programs hide formulas that they show as pictures
    _remove([node for node in tree.css(_UNSEEN) if node.css_first("math") is None])
    if tree.css_first(_MAIN) is not None:
        _remove(tree.css(_ASIDE))
    _remove([node for node in tree.css(_PERMALINKS) if _is_permalink(node)])
    for button in tree.css(_OPENING):
        if button.attributes.get("aria-controls") is None or (
            len(button.text().split()) >= _LEAST_WORDS
        ):
            button.unwrap()
    builder = Builder(limits)
    if tree.body is not None:
        _Walk(builder).run(tree.body)
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


def _is_permalink(node: LexborNode) -> bool:
    text = node.text().strip()
    return _NO_WORDS.fullmatch(text) is not None and (text == "§" or not _FOOTNOTE.fullmatch(text))


def _remove(nodes: list[LexborNode]) -> None:
    # a removed node takes those below it along, which stand after it
    for node in reversed({node.mem_id: node for node in nodes}.values()):
        if node.tag not in ("html", "body"):
            node.decompose()


def _events(top: LexborNode, closed: Container[str] = _HIDDEN) -> Iterator[tuple[LexborNode, bool]]:
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
            opened = node.tag not in closed and not (node.tag == "table" and _is_data(node))
            if opened and node.child is not None:
                parents.append(node)
                node = node.child
                continue
        yield node, False
        node = node.next


def _said(node: LexborNode, *, enters: bool) -> str:
    """What a node within a line adds to it: its text, and marks of raised and divided parts."""
    tag = node.tag
    if tag == "-text":
        return node.text_content or "" if enters else ""
    if tag == "sup":
        return UP if enters else DOWN
    if tag == "math":
        # a formula may be stated for those who hear it only
        alone = enters and not node.text().strip()
        return node.attributes.get("alttext") or "" if alone else ""
    parent = node.parent.tag if node.parent is not None else ""
    if parent in ("mfrac", "msup") and tag != "-text" and _is_second(node):
        if parent == "msup":
            return UP if enters else DOWN
        return "/" if enters else ""
    return "√" if tag == "msqrt" and enters else ""


def _is_second(node: LexborNode) -> bool:
    """Whether a node is the second element of its parent."""
    second = next(islice(node.parent.iter(), 1, 2), None) if node.parent is not None else None
    return second is not None and second.mem_id == node.mem_id


def _line_of(top: LexborNode) -> str:
    """The text below a node in one line."""
    parts: list[str] = []
    for node, enters in _events(top):
        is_apart = node.tag in _BLOCKS or node.tag == "br"
        parts.append(" " if is_apart else _said(node, enters=enters))
    return " ".join("".join(parts).split())


class _Walk:
    """Collects the text of a tree; goes through it in a loop, however deep it is."""

    def __init__(self, builder: Builder) -> None:
        self._builder = builder
        self._parts: list[str] = []
        self._pre = 0
        self._level = 0
        # of each list around the place, the number and the style of the next item; None: no number
        self._lists: list[tuple[int, str] | None] = []
        self._before = ""

    def run(self, top: LexborNode) -> None:
        """Add the text below a node to the builder."""
        for node, enters in _events(top):
            tag = node.tag
            if tag in _HEADINGS:
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
                elif tag in ("ol", "ul"):
                    self._list(node, enters=enters)
                elif tag == "li" and enters:
                    self._item(node)
                elif tag == "table" and enters and _is_data(node):
                    self._builder.add("\n".join(_rows(node)))
            else:
                self._say(_said(node, enters=enters))
        self._end()

    def _say(self, text: str) -> None:
        if self._before and text.strip():
            self._parts.append(self._before)
            self._before = ""
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


def _is_data(table: LexborNode) -> bool:
    """Whether cells stand beside each other, with nothing in them but text."""
    part = table.child
    while part is not None:
        # of the table itself the selector would find the table
        if part.css_first(_NESTED) is not None:
            return False
        part = part.next
    return table.css_first(_BESIDE) is not None


def _rows(table: LexborNode) -> list[str]:
    """The caption and the rows of a table, each cell in the column where the page shows it."""
    lines: list[str] = []
    # columns that a cell of a former row still takes, and for how many rows
    taken: dict[int, int] = {}
    for node, enters in _events(table, _DATA):
        if node.tag == "caption" and enters:
            lines.append(_line_of(node))
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
        if cell.tag in _CELLS:
            skip()
            attributes = cell.attributes
            wide = min(max(1, number(attributes.get("colspan") or "", 1)), _WIDEST)
            high = min(number(attributes.get("rowspan") or "", 1), _HIGHEST)
            taken.update(dict.fromkeys(range(len(cells), len(cells) + wide), high - 1))
            cells += [_line_of(cell), *[""] * (wide - 1)]
        cell = cell.next
    skip()
    return "\t".join(cells).rstrip("\t")


def read_book(stream: BinaryIO, limits: Limits) -> Content:
    """The text of the parts of an EPUB in the order of its spine."""
    package = Package(stream, limits, _CONTAINER, "EPUB")
    main = value(package.xml(_CONTAINER), ".//rootfile", "full-path")
    book = package.xml(main)
    folder = main.rpartition("/")[0]
    held = {
        item.get("id", ""): path(folder, item.get("href", ""))
        for item in book.iter("item")
        if not item.get("media-type", "").startswith("image/")
    }
    # fonts may be encrypted in any book
    locked = {path("", one.get("URI", "")) for one in package.xml(_LOCKED).iter("CipherReference")}
    builder = Builder(limits)
    for item in book.iter("itemref"):
        name = held.get(item.get("idref", ""), "")
        if name in locked:
            raise UnreadableError("encrypted; save it without protection")
        builder.append(content_of(package.content(name), limits, xml=True))
    stated: dict[str, str] = {}
    for one in book.iterfind("metadata/*"):
        stated.setdefault(one.tag, one.text or "")
    return builder.content(stated.get("title"), stated.get("creator"), stated.get("date"))


def read_article(stream: BinaryIO, limits: Limits) -> Content:
    """The title, the abstract and the text of an article in XML (JATS), as HTML has them."""
    content = stream.read()
    article = tree(content)
    if article.tag == "html":
        return content_of(content, limits, xml=True)
    meta = article.find("front/article-meta")
    if article.tag != "article" or meta is None:
        raise UnreadableError(
            "XML of another kind than an article (JATS): save it as HTML or plain text"
        )
    names = [f"{_text(one, 'given-names')} {_text(one, 'surname')}" for one in meta.iter("name")]
    date = "-".join(_text(meta, f"pub-date/{part}").zfill(2) for part in ("year", "month", "day"))
    page = f"<title>{html.escape(_text(meta, _TITLE))}</title>"
    for name, said in (("author", ", ".join(names)), ("date", date)):
        page += f'<meta name="{name}" content="{html.escape(said)}">'
    shown = [*meta.iterfind(_TITLE), *meta.iterfind("abstract")]
    for one in (*shown, *article.iterfind("body"), *article.iterfind("back")):
        _rename(one, 0)
        one.tag = "h1" if one.tag == _INLINE else one.tag
        page += tostring(one, encoding="unicode", method="html")
    return content_of(page.encode(), limits, "utf-8")


def _text(element: Element, path: str) -> str:
    found = element.find(path)
    return "" if found is None else " ".join("".join(found.itertext()).split())


def _rename(element: Element, level: int) -> None:
    """Let an element of an article be one of HTML; ``level`` is that of the headings around it."""
    name = element.tag
    # citations have nothing between their parts
    tail = element.tail or ("" if name in _SAME else " ")
    level += name in _SECTIONS
    title, number = element.find("title"), element.find("label")
    if name in _OMITTED:
        element.clear()
    elif name == "abstract" and title is None:
        title = Element("title")
        title.text = "Abstract"
        element.insert(0, title)
    elif name in ("sec", "app") and title is not None and number is not None:
        title.text = f"{_text(element, 'label')} {title.text or ''}"
        element.remove(number)
    for one in element:
        _rename(one, level)
    element.attrib = {key: element.attrib[key] for key in _SPANS & element.attrib.keys()}
    element.tail = tail
    if name == "title":
        element.tag = f"h{min(level + 1, 6)}"
    elif name in _SAME:
        element.tag = _NAMES.get(name, name)
    else:
        element.tag = "div" if name in _PARTS else _INLINE
