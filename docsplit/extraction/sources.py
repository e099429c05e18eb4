"""Plain text, Markdown and reStructuredText: the source as it is, and its headings."""

import re
from collections.abc import Callable

from docsplit.extraction import building
from docsplit.extraction.content import Content, Heading

# what static sites and notes write before Markdown, in YAML or in TOML
_FRONT = re.compile(r"\A(---|\+\+\+)[ \t]*\r?\n(?:[^\n]*\n){0,200}?\1[ \t]*(?:\r?\n|\Z)")
_STATED = re.compile(
    r"""^(title|author|date)[ \t]*[:=][ \t]*["']?([^"'\[{|>\r\n][^"'\r\n]*)["']?[ \t]*\r?$""", re.M
)
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_HASHES = re.compile(r" {0,3}(#{1,6})[ \t]+(.+?)(?:[ \t]+#+)?[ \t]*$")
_UNDERLINE = re.compile(r" {0,3}(=+|-{2,})[ \t]*$")
_ADORNMENT = re.compile(r"([!-/:-@[-`{-~])\1*[ \t]*$")
_WIDE = 3
# characters; a longer line is no heading, and would cost quadratic time
_LONGEST = 300


def content_of(kind: str, text: str) -> Content:
    """The text with its headings; the first one is the title if the text states no other.

    Args:
        kind: of ``docsplit.extraction.kinds.SOURCES``.
        text: of the file.
    """
    head = _FRONT.match(text) if kind == ".md" else None
    stated = dict(_STATED.findall(head[0])) if head else {}
    start = head.end() if head else 0
    headings = [one._replace(start=start + one.start) for one in _HEADINGS[kind](text[start:])]
    title = building.line(stated.get("title")) or (headings[0].title if headings else None)
    author, date = building.line(stated.get("author")), building.day(stated.get("date"))
    return Content(text, title, author, date, [], headings)


def _plain(text: str) -> list[Heading]:
    return []


def _markdown(text: str) -> list[Heading]:
    """Headings with hashes before them or a line below them, outside of fenced code."""
    found: list[Heading] = []
    fence, start, before, begin = "", 0, "", 0
    for line in text.splitlines(keepends=True):
        bare = line.rstrip("\r\n") if len(line) <= _LONGEST else ""
        if match := _FENCE.match(bare):
            if not fence:
                fence = match[1]
            elif bare.strip().startswith(fence) and not bare.strip().strip(fence[0]):
                fence = ""
        elif not fence:
            if match := _HASHES.match(bare):
                found.append(Heading(start, len(match[1]), match[2]))
                bare = ""
            elif before.strip() and (match := _UNDERLINE.match(bare)):
                found.append(Heading(begin, 1 if match[1][0] == "=" else 2, before.strip()))
                bare = ""
        before, begin = ("" if fence else bare), start
        start += len(line)
    return found


def _restructured(text: str) -> list[Heading]:
    """Lines with an adornment below them, of the level in which the adornments first occur."""
    found: list[Heading] = []
    levels: dict[str, int] = {}
    lines = text.splitlines(keepends=True)
    start = 0
    for number, line in enumerate(lines):
        below = lines[number + 1].rstrip() if number + 1 < len(lines) else ""
        above = lines[number - 1].rstrip() if number else ""
        title = line.rstrip()
        if _is_title(title, above, below):
            over = above == below
            style = below[0] * (1 + over)
            level = levels.setdefault(style, len(levels) + 1)
            found.append(Heading(start + len(title) - len(title.lstrip()), level, title.strip()))
        start += len(line)
    return found


def _is_title(title: str, above: str, below: str) -> bool:
    if (
        not 0 < len(title.strip()) <= _LONGEST
        or _ADORNMENT.match(title)
        or not _ADORNMENT.match(below)
    ):
        return False
    wide = max(_WIDE, len(title.strip()))
    if above == below:
        return len(below) >= wide
    # a paragraph's last line is no title, and a title without a line above is not indented
    return not above and not title[0].isspace() and len(below) >= wide


_HEADINGS: dict[str, Callable[[str], list[Heading]]] = {
    ".md": _markdown,
    ".rst": _restructured,
    ".txt": _plain,
}
