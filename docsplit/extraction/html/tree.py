"""The nodes of HTML in their order."""

from collections.abc import Container, Iterator

from selectolax.lexbor import LexborNode

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


def text_of(top: LexborNode) -> str:
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
