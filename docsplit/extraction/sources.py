"""Plain text, Markdown, reStructuredText and TeX: the source as it is, and its headings."""

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
_SECTIONS = ("part", "chapter", "section", "subsection", "subsubsection", "paragraph")
# of TeX, each on one line and not in a remark
_SECTION = re.compile(
    r"^[ \t]*\\(part|chapter|(?:sub){0,2}section|paragraph)\*?(?:\[[^\]\n]{0,300}\])?"
    r"\{((?:[^{}\n]|\{[^{}\n]{0,99}\}){1,300})\}",
    re.M,
)
_TEX_STATED = re.compile(
    r"^[ \t]*\\(title|author|date)\{((?:[^{}]|\{[^{}]{0,99}\}){1,300})\}", re.M
)
_COMMAND = re.compile(r"\\(?:label|thanks|footnote|inst)\{[^{}]*\}|\\[a-zA-Z]+\*?|\\\\|~")
_BRACES = str.maketrans("", "", "{}\\")
# characters; a longer line is no heading, and would cost quadratic time
_LONGEST = 300


def content_of(kind: str, text: str) -> Content:
    """The text with its headings; the first one is the title if the text states no other.

    Args:
        kind: of ``docsplit.extraction.kinds.SOURCES``.
        text: of the file.
    """
    text = building.settled(text)
    find = _HEADINGS.get(kind, _plain)
    head = _FRONT.match(text) if find is _markdown else None
    stated = dict(_STATED.findall(head[0])) if head else {}
    if find is _tex:
        stated = {name: _words(held) for name, held in _TEX_STATED.findall(text)}
    start = head.end() if head else 0
    headings = [one._replace(start=start + one.start) for one in find(text[start:])]
    title = building.stated(stated.get("title")) or (headings[0].title if headings else None)
    author, date = building.stated(stated.get("author")), building.day(stated.get("date"))
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


def _tex(text: str) -> list[Heading]:
    """The titles of parts, chapters and sections, of levels from the highest that occurs."""
    found = [
        Heading(one.start(), _SECTIONS.index(one[1]), title)
        for one in _SECTION.finditer(text)
        if (title := _words(one[2]))
    ]
    highest = min((one.level for one in found), default=0)
    return [one._replace(level=one.level - highest + 1) for one in found]


def _words(tex: str) -> str:
    """The words of a line of TeX without its commands."""
    return " ".join(_COMMAND.sub(" ", tex).translate(_BRACES).split())


_HEADINGS: dict[str, Callable[[str], list[Heading]]] = {
    **dict.fromkeys((".md", ".markdown", ".mdown"), _markdown),
    ".rst": _restructured,
    ".tex": _tex,
}
