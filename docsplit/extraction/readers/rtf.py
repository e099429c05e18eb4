"""RTF as accepted: the text, then its notes and text boxes, and what its information states."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import BinaryIO

from docsplit.extraction.building import Builder, above
from docsplit.extraction.content import Content, Limits, UnreadableError

# a control word with its number, a byte, a control symbol, a brace, the end of a line, and text
_TOKEN = re.compile(
    r"\\([a-zA-Z]{1,32})(-?\d{1,10})? ?|\\'([0-9a-fA-F]{2})|\\([^a-zA-Z])|([{}])|[\r\n\0]+"
    r"|([^\\{}\r\n\0]+)"
)
_CREATED = re.compile(r"\{\\creatim\\yr(\d{4})\\mo(\d{1,2})\\dy(\d{1,2})")
_SIGNS = {
    "par": "\n", "line": "\n", "sect": "\n", "page": "\n", "row": "\n", "nestrow": "\n",
    "tab": "\t", "cell": "\t", "nestcell": "\t", "emdash": "—", "endash": "–", "bullet": "•",
    "lquote": "‘", "rquote": "’", "ldblquote": "“", "rdblquote": "”", "emspace": " ",
    "enspace": " ", "qmspace": " ",
}  # fmt: skip
_SYMBOLS = {"~": "\xa0", "_": "-", "\\": "\\", "{": "{", "}": "}", "\r": "\n", "\n": "\n"}
# groups whose text the page does not show, besides unknown ones that are marked by \*
_UNSEEN = frozenset(
    re.findall(
        r"\w+",
        "colortbl pict header headerl headerr headerf footer footerl footerr footerf xe tc tcn rxe"
        " fldinst bkmkstart bkmkend objdata nonshppict shppict sn sv shprslt atnid atnauthor pn"
        " annotation ftnsep ftnsepc aftnsep aftnsepc listtable listoverridetable revtbl rsidtbl"
        " themedata template datastore generator latentstyles xmlnstbl pnseclvl private mvfmf mvtof"
        " colorschememapping filetbl userprops docvar",
    )
)
# groups that are read even if they are marked, and words that begin no group
_SEEN = {"footnote", "shpinst", "shpgrp", "shptxt", "ud", "cs", "ds", "ts", "listtext", "pntext"}
_NUMBERS = {"listtext", "pntext"}
# by the numbers of Windows for the letters of a font, and for code pages beside those of Windows
_CHARSETS = {
    77: "mac_roman", 128: "cp932", 129: "cp949", 130: "johab", 134: "gb18030", 136: "cp950",
    161: "cp1253", 162: "cp1254", 163: "cp1258", 177: "cp1255", 178: "cp1256", 186: "cp1257",
    204: "cp1251", 222: "cp874", 238: "cp1250",
}  # fmt: skip
_PAGES = {
    10000: "mac_roman", 10001: "shift_jis", 10004: "mac_arabic", 10006: "mac_greek",
    10007: "mac_cyrillic", 10029: "mac_latin2", 10081: "mac_turkish", 65001: "utf-8",
    936: "gb18030", 708: "iso8859-6",
}  # fmt: skip
_WESTERN = "cp1252"
_LEVELS = 9


@dataclass(slots=True)
class _Group:
    """What holds for the text in a group.

    Attributes:
        out: gets it.
        kind: the control word that the group is named by; of a group without one that of the outer.
        codec: of its bytes.
        fallback: characters that follow one in Unicode in its place.
    """

    out: list[str]
    kind: str = ""
    codec: str = _WESTERN
    fallback: int = 1
    is_unseen: bool = False
    is_hidden: bool = False
    is_deleted: bool = False
    is_raised: bool = False
    end: Callable[[], None] | None = None


@dataclass(slots=True)
class _Document:
    """What a file states besides its text; styles and fonts by their numbers."""

    body: list[str] = field(default_factory=list)
    notes: list[list[str]] = field(default_factory=list)
    stated: dict[str, list[str]] = field(default_factory=lambda: {"title": [], "author": []})
    codec: str = _WESTERN
    fonts: dict[int, str] = field(default_factory=dict)
    styles: dict[int, int] = field(default_factory=dict)
    # of the paragraphs that are headings, by the number of what ``body`` holds before their end
    levels: dict[int, int] = field(default_factory=dict)


def read(stream: BinaryIO, limits: Limits) -> Content:
    """The text without pictures, headers, footers, and what is deleted or hidden."""
    source = stream.read().decode("latin-1")
    if not source.lstrip().startswith("{\\rtf"):
        raise UnreadableError("no RTF file")
    found = _parsed(source)
    builder = Builder(limits)
    paragraphs: list[str] = []
    start = 0
    for place, part in enumerate([*found.body, "\n"]):
        if part != "\n":
            continue
        text = _joined(found.body[start:place])
        start = place + 1
        if (level := found.levels.get(place)) and text.strip():
            builder.add("\n".join(paragraphs))
            paragraphs = []
            builder.heading(level, text)
        else:
            paragraphs.append(text)
    builder.add("\n".join(paragraphs))
    builder.add("\n".join(text for note in found.notes if (text := _joined(note).strip())))
    created = _CREATED.search(source)
    date = "{}-{:0>2}-{:0>2}".format(*created.groups()) if created else None
    return builder.content(_joined(found.stated["title"]), _joined(found.stated["author"]), date)


def _joined(parts: list[str]) -> str:
    """A text; large characters come in halves."""
    text = "".join(parts).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return "\n".join(line.rstrip("\t ") for line in text.split("\n"))


def _parsed(source: str) -> _Document:
    found = _Document()
    group = _Group(found.body)
    outer: list[_Group] = []
    held = bytearray()
    # characters to leave out, whether a group begins, and whether it may be left out
    skipped, begins, is_marked = 0, False, False
    level, font, style, place = 0, 0, 0, 0

    def say(text: str) -> None:
        if not (group.is_unseen or group.is_hidden or group.is_deleted):
            group.out.append(above(text) if group.is_raised and text not in _SIGNS else text)

    def flush() -> None:
        if held:
            try:
                say(held.decode(group.codec, "replace"))
            except LookupError:
                say(held.decode(_WESTERN, "replace"))
            held.clear()

    while token := _TOKEN.match(source, place):
        place = token.end()
        word, digits, code, symbol, brace, text = token.groups()
        if code or text:
            data = bytes((int(code, 16),)) if code else text.encode("latin-1")
            left = data[skipped:]
            skipped = max(0, skipped - len(data))
            held += left
            begins = False
            continue
        if word is None and symbol is None and brace is None:
            continue
        flush()
        if brace == "{":
            outer.append(group)
            group = replace(group, end=None)
            begins, is_marked, skipped = True, False, 0
            continue
        if brace == "}":
            if group.end is not None:
                group.end()
            if outer:
                group = outer.pop()
            begins, skipped = False, 0
            continue
        if symbol is not None:
            if symbol == "*":
                is_marked = begins
                continue
            if skipped:
                skipped -= 1
            elif symbol in _SYMBOLS:
                say(_SYMBOLS[symbol])
            begins = False
            continue
        word, number = word or "", int(digits) if digits else None
        is_on = number != 0
        if begins:
            begins = False
            if word in _UNSEEN or (is_marked and word not in _SEEN):
                group.is_unseen = True
            _named(word, group, found)
        match word:
            case "u" if number is not None:
                say(chr(number % 0x10000))
                skipped = group.fallback
            case "uc":
                group.fallback = max(0, number or 0)
            case "bin":
                place += max(0, number or 0)
            case "v" | "webhidden":
                group.is_hidden = is_on
            case "deleted" | "mvf":
                group.is_deleted = is_on
            case "super" | "up":
                group.is_raised = is_on
            case "nosupersub" | "sub" | "dn":
                group.is_raised = False
            case "plain":
                group.is_hidden = group.is_raised = group.is_deleted = False
            case "ansicpg" | "mac" | "pc" | "pca":
                names = {"mac": "mac_roman", "pc": "cp437", "pca": "cp850"}
                page = number or 1252
                found.codec = group.codec = names.get(word) or _PAGES.get(page, f"cp{page}")
            case "f" if group.kind == "fonttbl":
                font = number or 0
            case "fcharset" if number in _CHARSETS:
                found.fonts[font] = _CHARSETS[number]
            case "f" if group.kind not in found.stated:
                group.codec = found.fonts.get(number or 0, found.codec)
            case "s" if group.kind == "stylesheet":
                style = number or 0
            case "outlinelevel" if group.kind == "stylesheet":
                found.styles[style] = (number or 0) + 1
            case "pard":
                level = 0
            case "s":
                level = found.styles.get(number or 0, 0)
            case "outlinelevel":
                level = (number or 0) + 1
            case _ if word in _SIGNS:
                if word in ("par", "sect") and group.out is found.body and 0 < level <= _LEVELS:
                    found.levels[len(found.body)] = level
                if not skipped:
                    say(_SIGNS[word])
                skipped = max(0, skipped - 1)
    flush()
    return found


def _named(word: str, group: _Group, found: _Document) -> None:
    """Let the text of a group that is named by a control word go to its place."""
    if word in ("fonttbl", "stylesheet", "info", "upr"):
        group.kind, group.is_unseen = word, True
    elif word in found.stated and group.kind == "info":
        group.kind, group.out, group.is_unseen = word, found.stated[word], False
        group.codec = found.codec
    elif word == "ud" and group.kind == "upr":
        group.is_unseen = False
    elif word in ("footnote", "shptxt") and not group.is_unseen:
        group.out = []
        found.notes.append(group.out)
        group.is_raised = False
    elif word in _NUMBERS:
        target, group.out = group.out, []
        label = group.out

        def number() -> None:
            # a bullet says nothing
            text = "".join(label).strip()
            target.extend([f"{text} "] if any(map(str.isalnum, text)) else [])

        group.end = number
