"""The text of HTML with its headings, numbers of lists and rows of tables."""

import re

from selectolax.lexbor import LexborNode

from docsplit.extraction.building import Builder, raised
from docsplit.extraction.html.tables import lines_of
from docsplit.extraction.html.tree import BLOCKS, CELLS, events, is_data
from docsplit.extraction.office.numbers import label
from docsplit.extraction.office.package import number

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
