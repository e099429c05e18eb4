"""The rules that all readers share, and the text that they put together with pages and headings.

What a character means (raised numbers, soft hyphens, accents of their own), what is no title, which
lines a file's pages repeat, and which words a line's end divides is decided here and nowhere else.
"""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from docsplit.extraction.content import Content, Heading, Limits, UnreadableError

# these stand in a block where a page begins, and around what is raised above the line: not
# characters, so no text means them
PAGE, UP, DOWN = "\ufdd0", "\ufdd1", "\ufdd2"
# control characters except tab and line feed, halves of surrogate pairs, and non-characters
_UNWANTED = re.compile("[\x00-\x08\x0e-\x1f\x7f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")
_LINE_ENDS = re.compile("\r\n|[\r\x0b\x0c\u2028\u2029]")
# what divides a word that no search finds then; between words of scripts without blanks it stays
_INVISIBLE = re.compile("[\xad\u2060\ufeff]|(?<![\u0e00-\u109f\u1780-\u17ff])\u200b")
_ABOVE = re.compile(f"{UP}([^{UP}{DOWN}]*){DOWN}")
_NUMBER = re.compile(r"[+\-−]?\d[\d\s.,;–-]*")
_RAISED = str.maketrans("0123456789+-−", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁻")
# longest title and author; an index takes longer ones, and no file means them
_MOST = 1000
# what programs write where the user gave no title or author
_ENDS = (
    "docx?|dotx?|docm|pptx?|ppsx?|pptm|xlsx?|xlsm|od[tps]|rtf|txt|html?|tex|dvi|e?ps|pdf|indd|qxd"
    "|exe|pages|key|fm|wpd|pub|tmp|jpe?g|png|tiff?|bin|md|csv"
)
_NO_TITLE = re.compile(
    r"(?i)(?:\(?(?:un(?:titled|specified|known|named)|anonymous|no title|title|author|new|blank)\)?"
    r"(?:[ -](?:document|presentation|spreadsheet|form|page|drawing|design))?(?: ?\d+)?"
    r"|(?:document|presentation|spreadsheet|workbook|book|slide|sheet|dokument|präsentation) ?\d*"
    r"|(?:word document|excel workbook|pdf document|scanned document|python-docx)"
    r"|(?:microsoft )?power ?point[ -]?(?:pr[aeä]s\w+|prezent\w+|bemutató|演示文稿|簡報|"
    r"プレゼンテーション|프레젠테이션)"
    r"|(?:pr[eé]s\w+|apresentação|презентация|prezentac\w+)(?: d[eio]l?)? (?:microsoft )?"
    r"power ?point"
    rf"|microsoft \w+ - .*|[^\s].*\.(?:{_ENDS}))$"
)


class Builder:
    """Collects the blocks of a text; a blank line stands between two blocks.

    Args:
        limits: of the text.
    """

    def __init__(self, limits: Limits) -> None:
        self._most = limits.characters
        self._blocks: list[str] = []
        self._size = 0
        self._pages: list[int] = []
        self._headings: list[Heading] = []

    @property
    def size(self) -> int:
        """The number of characters so far, which is where the next block begins."""
        return self._size

    def add(self, block: str) -> None:
        """Add a block, if it holds anything; each ``PAGE`` in it begins a page.

        Raises:
            UnreadableError: the text is longer than the limit.
        """
        pieces = [clean(piece) for piece in block.split(PAGE)]
        pieces[0] = pieces[0].lstrip("\n")
        pieces[-1] = pieces[-1].rstrip()
        text = pieces[0]
        for piece in pieces[1:]:
            self._pages.append(self._size + len(text))
            text += piece
        if not text.strip():
            return
        self._blocks.append(text)
        self._size += len(text) + 2
        if self._size > self._most:
            raise UnreadableError(f"more than {self._most:,} characters of text; split it")

    def heading(self, level: int, text: str, title: str | None = None) -> None:
        """Add a heading as a block of one line; a ``PAGE`` in it begins a page before it.

        Args:
            level: 1 is the highest.
            text: of the line.
            title: what hits show in its place.
        """
        for _ in range(text.count(PAGE)):
            self.page()
        text = " ".join(clean(text).split())
        if text:
            self._headings.append(Heading(self._size, level, clean(title or text)))
            self.add(text)

    def page(self) -> None:
        """Begin a page."""
        self._pages.append(self._size)

    def append(self, part: Content) -> None:
        """Add a text with its headings."""
        start = self._size
        self.add(part.text)
        self._headings += [h._replace(start=start + h.start) for h in part.headings]

    def content(
        self, title: str | None = None, author: str | None = None, date: str | None = None
    ) -> Content:
        """The text so far.

        Args:
            title: stated by the file; the first heading by default, and in place of a placeholder.
            author: stated by the file.
            date: in ISO 8601; any other is left out.
        """
        text = "\n\n".join(self._blocks)
        # a page without text may begin after the end
        pages = [min(start, len(text)) for start in self._pages]
        first = self._headings[0].title if self._headings else None
        title = stated(title) or line(first)
        return Content(text, title, stated(author), day(date), pages, self._headings)


def clean(text: str) -> str:
    """The text without characters that no text means, with line feeds as line ends.

    What is marked by ``above`` comes in Unicode's signs if it is a number.
    """
    if not text.isprintable():
        if UP in text:
            # a number may have several parts
            text = _ABOVE.sub(lambda found: raised(found[1]), text.replace(DOWN + UP, ""))
        text = _UNWANTED.sub("", _LINE_ENDS.sub("\n", text))
    # most lines are printable, which takes a tenth of the time
    return settled(text)


def settled(text: str) -> str:
    """The text with whole words: letters with their accents, no soft hyphens within."""
    if text.isascii():
        return text
    return unicodedata.normalize("NFC", _INVISIBLE.sub("", text))


def above(text: str) -> str:
    """A part of a block that stands above its line."""
    return f"{UP}{text}{DOWN}"


def raised(text: str) -> str:
    """A number above the line in Unicode's signs, which no search takes for a part of the word."""
    return text.translate(_RAISED) if _NUMBER.fullmatch(text.strip()) else text


def line(text: str | None) -> str | None:
    """A title or a name in one line of bounded length; None if it is empty."""
    return " ".join(clean(text or "").split())[:_MOST].rstrip() or None


def stated(text: str | None) -> str | None:
    """A title or an author as a file states it; None if a program wrote it where there is none."""
    found = line(text)
    return None if found is None or _NO_TITLE.match(found) else found


def day(date: str | None) -> str | None:
    """A date or time in ISO 8601 as Python writes it; None for any other text."""
    try:
        moment = datetime.fromisoformat((date or "").strip())
    except ValueError:
        return None
    return moment.date().isoformat() if len((date or "").strip()) <= 10 else moment.isoformat()


# lines at each edge of a page that may repeat
_EDGE = 3
_EDGES = (0, -1)
# pages that must repeat a line before its first copy goes too: on fewer ones it may be text
_SURE = 5
# pages that must repeat a line, and their share of all pages: left and right pages may differ
_LEAST, _SHARE = 2, 0.3
# a shorter line, such as a brace, may stand at the edge of two pages by chance
_SHORT, _LEAST_SHORT = 10, 3
# stands for a number in a line
_MARK = "\0"
# by how much a number grows from page to page; 0 is one that stays the same, such as a year
_STEPS = (0, 1, -1, 2)
# how PDFium writes a hyphen at the end of a line
HYPHEN = "\ufffe"
# a page's number and nothing else
_NUMBERED = re.compile(r"(?i)(?:page |[-–] ?)?(\d{1,5})(?: ?[-–]| ?(?:of|/) ?\d{1,5})?$")
_DIGITS = re.compile(r"\d{1,6}")
# with a boundary before them, a long word costs linear time
_DIVIDED = re.compile(f"\\b(\\w+){HYPHEN}(?=(\\w+))")
_WHOLE = re.compile(r"\b\w+-\w+")
# of the numbers of a line that many pages have: by how much each grows, and whether the line goes
# whatever its other numbers are
_Rules = Mapping[str, tuple[list[int], bool]]


class _Edge(NamedTuple):
    """What repeats at an edge of the pages; ``sure`` is what goes from the first page on."""

    edge: int
    rules: _Rules
    repeated: set[str]
    sure: set[str]


def without_repeated(pages: Sequence[list[str]]) -> list[list[str]]:
    """The lines of each page without headers, footers and page numbers; see ``bodies``."""
    return [
        [lines[number] for number in own] for lines, own in zip(pages, bodies(pages), strict=True)
    ]


def bodies(pages: Sequence[list[str]]) -> list[list[int]]:
    """The numbers of the lines of each page that are neither headers nor footers.

    A line at the edge of a page is one of them if it stands at the same edge of many pages, with
    nothing different but numbers of which one counts the pages. Each stays where it first stands if
    few pages have it, and where most lines at the edges of a page repeat: they may be text, such as
    the end of each part of a form, or a slide that is shown in steps.
    The first or last line of a page goes if it is the page's number.
    """
    edges = [_repeated(pages, edge) for edge in _EDGES]
    found: list[list[int]] = []
    # lines of the former pages
    stay: set[str] = set()
    for place, lines in enumerate(pages):
        is_text = _is_text(lines, edges)
        gone = {number for one in edges for number in _gone(lines, place, one, stay, is_text)}
        found.append([number for number in range(len(lines)) if number not in gone])
        stay.update(_plain(lines[number]) for number in found[-1])
    return found


def _repeated(pages: Sequence[list[str]], edge: int) -> _Edge:
    rules = _rules(pages, edge)
    counted = Counter(
        key
        for place, lines in enumerate(pages)
        for key in {one for n in _edge(lines, edge) for one in _keys(lines[n], place, rules)}
    )
    repeated = {key for key, count in counted.items() if count >= _needed(key, len(pages))}
    return _Edge(edge, rules, repeated, {key for key in repeated if counted[key] >= _SURE})


def _needed(key: str, pages: int) -> float:
    """The number of pages that must have a key."""
    least = _LEAST_SHORT if len(key.partition(_MARK + "[")[0]) < _SHORT else _LEAST
    # a number that counts the pages is no chance, even in the header of a short chapter
    return least if _MARK in key else max(least, _SHARE * pages)


def _is_text(lines: list[str], edges: Sequence[_Edge]) -> bool:
    """Whether most lines at the edges of a page repeat."""
    share = {
        number
        for one in edges
        for number in _edge(lines, one.edge)
        if _plain(lines[number]) in one.repeated
    }
    return 2 * len(share) > min(len(lines), 2 * _EDGE)


def _edge(lines: list[str], edge: int) -> list[int]:
    """The numbers of the lines at an edge, the outermost first."""
    numbers = range(len(lines))
    return list(numbers[:_EDGE] if edge == 0 else reversed(numbers[-_EDGE:]))


def _gone(lines: list[str], place: int, at: _Edge, stay: set[str], is_text: bool) -> Iterator[int]:
    """The lines at an edge that repeat, and those outside of them that a former page has too."""
    outside = False
    for depth, number in reversed(list(enumerate(_edge(lines, at.edge)))):
        plain, *counted = _keys(lines[number], place, at.rules)
        page = _NUMBERED.match(plain)
        if (
            not at.repeated.isdisjoint(counted)
            or (plain in at.sure and not is_text)
            or (plain in stay and (plain in at.repeated or outside))
            or (not depth and page is not None and int(page[1]) == place + 1)
        ):
            outside = True
            yield number


def _rules(pages: Sequence[list[str]], edge: int) -> _Rules:
    """How the numbers grow in the lines at an edge that differ in nothing else."""
    groups: defaultdict[str, list[tuple[int, list[int]]]] = defaultdict(list)
    for place, lines in enumerate(pages):
        for number in _edge(lines, edge):
            plain = _plain(lines[number])
            if numbers := list(map(int, _DIGITS.findall(plain))):
                groups[_DIGITS.sub(_MARK, plain)].append((place, numbers))
    found: dict[str, tuple[list[int], bool]] = {}
    for text, group in groups.items():
        steps: list[int] = []
        most = 0
        for n in range(text.count(_MARK)):
            counts = {
                step: max(Counter(held[n] - step * place for place, held in group).values())
                for step in _STEPS
            }
            step = max(_STEPS, key=lambda step: counts[step])
            is_chance = counts[step] < min(_LEAST_SHORT, len(group))
            steps.append(0 if is_chance else step)
            most = max(most, counts[step] if steps[-1] else 0)
        found[text] = steps, len(text) >= _SHORT and most >= max(_LEAST_SHORT, len(group) / 2)
    return found


def _keys(line: str, place: int, rules: _Rules) -> Iterator[str]:
    """The line, and the line with the numbers that grow counted from that of the page."""
    line = _plain(line)
    yield line
    text = _DIGITS.sub(_MARK, line)
    steps, free = rules.get(text, ([], False))
    if any(steps):
        numbers = zip(map(int, _DIGITS.findall(line)), steps, strict=True)
        own = [n - step * place for n, step in numbers if step or not free]
        yield f"{text}{_MARK}{own}"


def _plain(line: str) -> str:
    return " ".join(line.split())


def joined(pages: Sequence[str]) -> list[str]:
    """The pages with the words whole that a line's end divides.

    A hyphen stays if a page has the word with it elsewhere, next to a digit or a capital letter,
    and after a single letter: no line ends so within a word.
    """
    known = {word for page in pages for word in _WHOLE.findall(page)}

    def join(match: re.Match[str]) -> str:
        before, after = match.groups()
        divides = len(before) > 1 and before[-1].islower() and after[0].islower()
        keeps = f"{before}-{after}" in known or not divides
        return f"{before}-" if keeps else before

    return [_DIVIDED.sub(join, page).replace(HYPHEN, "-\n") for page in pages]
