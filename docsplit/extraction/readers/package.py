"""What Office files, OpenDocument and EPUB share: parts in a zip archive, XML, and lists."""

import posixpath
import re
import zipfile
import zlib
from collections.abc import Callable, Container, Iterator, Mapping
from typing import BinaryIO, NamedTuple, TypeVar
from urllib.parse import unquote
from xml.etree.ElementTree import Element

from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import ParseError, fromstring

from docsplit.extraction.building import Builder
from docsplit.extraction.content import Content, Limits, UnreadableError

T = TypeVar("T")
# stands before and after a line, until all are known
_APART = "\ufdd4"
_LINES_APART = re.compile(f"{_APART}+")
# a compound file, the old format of Office, and the wrapping of encrypted new files
COMPOUND = bytes.fromhex("d0cf11e0a1b11ae1")
_MANIFEST = "META-INF/manifest.xml"
_CORE = "docProps/core.xml"


class Package:
    """The parts of a file.

    Args:
        stream: of the file.
        limits: of parts and bytes.
        needed: a part that every file of this kind has, perhaps under another name.
        kind: its name in messages.

    Attributes:
        main: the name of this part.

    Raises:
        UnreadableError: another kind of file, an encrypted or a damaged one.
    """

    def __init__(self, stream: BinaryIO, limits: Limits, needed: str, kind: str) -> None:
        self._left = limits.unpacked
        self._kind = kind
        start = stream.read(len(COMPOUND))
        stream.seek(0)
        if start == COMPOUND:
            raise UnreadableError(
                f"encrypted, or in an older format; save it without a password as {kind}"
            )
        try:
            self._zip = zipfile.ZipFile(stream)
        except (zipfile.BadZipFile, NotImplementedError, ValueError, OSError) as error:
            raise UnreadableError(f"no {kind} file, or a damaged one") from error
        names = self._zip.namelist()
        if len(names) > limits.members:
            raise UnreadableError(f"more than {limits.members:,} parts")
        self.names = frozenset(names)
        # of OpenDocument
        if b"encryption-data" in self.content(_MANIFEST):
            raise UnreadableError("encrypted; save it without a password")
        self.main = needed if needed in self.names else self._stated(needed)

    def _stated(self, needed: str) -> str:
        """The part that an Office file says to be the main one, if it is of the needed kind."""
        for name in self.related("", "/officeDocument").values():
            if self.xml(name).tag == posixpath.splitext(posixpath.basename(needed))[0]:
                return name
        raise UnreadableError(f"no {self._kind} file: it lacks {needed}")

    def content(self, name: str) -> bytes:
        """The bytes of a part; empty if the file lacks it.

        Raises:
            UnreadableError: damaged, encrypted, or too large.
        """
        if name not in self.names:
            return b""
        try:
            with self._zip.open(name) as part:
                found = part.read(self._left + 1)
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError) as error:
            raise UnreadableError(f"a damaged {self._kind} file") from error
        except RuntimeError as error:
            raise UnreadableError("encrypted; save it without a password") from error
        self._left -= len(found)
        if self._left < 0:
            raise UnreadableError("it unpacks to more than the limit")
        return found

    def xml(self, name: str) -> Element:
        """A part as a tree; an empty element if the file lacks it.

        Raises:
            UnreadableError: no well-formed XML, or XML that defines entities.
        """
        content = self.content(name)
        return tree(content, f"a damaged {self._kind} file: ") if content else Element("missing")

    def related(self, name: str, ending: str = "") -> dict[str, str]:
        """The parts that a part of an Office file refers to, by the reference.

        Args:
            name: of the part.
            ending: of the types of references.
        """
        folder, base = posixpath.split(name)
        held = self.xml(posixpath.join(folder, "_rels", f"{base}.rels"))
        return {
            one.get("Id", ""): path(folder, one.get("Target", ""))
            for one in held
            if one.get("Type", "").endswith(ending)
        }

    def finished(self, builder: Builder, title: str | None = None) -> Content:
        """The content with what the part for properties of an Office file states."""
        stated = {one.tag: one.text or "" for one in self.xml(_CORE)}
        return builder.content(
            stated.get("title") or title, stated.get("creator"), stated.get("created")
        )


def path(folder: str, target: str) -> str:
    """The name of the part that a part in a folder refers to."""
    return posixpath.normpath(posixpath.join("/", folder, unquote(target))).lstrip("/")


def tree(content: bytes, before: str = "") -> Element:
    """XML as a tree whose elements and attributes have no namespaces.

    Args:
        content: of the part or the file.
        before: what stands before the reason of a refusal.

    Raises:
        UnreadableError: no well-formed XML, or XML that defines entities.
    """
    try:
        found: Element = fromstring(content)
    except DefusedXmlException as error:
        raise UnreadableError("its XML defines entities") from error
    except (ParseError, ValueError, LookupError) as error:
        raise UnreadableError(f"{before}no well-formed XML") from error
    for one in found.iter():
        one.tag = one.tag.rpartition("}")[2]
        for name in [name for name in one.attrib if name[0] == "{"]:
            # a relationship's id may stand beside another one
            if (bare := name.rpartition("}")[2]) not in one.attrib:
                one.attrib[bare] = one.attrib.pop(name)
    return found


def value(element: Element, path: str, name: str = "val") -> str:
    """An attribute of the first element at a path below another one; empty if one is missing."""
    found = element.find(path)
    return "" if found is None else found.get(name, "")


def text_of(element: Element, special: Callable[[Element], str | None]) -> str:
    """The text below an element of an Office file; a paragraph within is a line of its own.

    Args:
        element: such as a paragraph or a cell.
        special: the text of an element; None goes into it.
    """

    def parts(outer: Element) -> Iterator[str]:
        for one in outer:
            if (text := special(one)) is not None:
                yield text
            elif one.tag == "p":
                yield from (_APART, *parts(one), _APART)
            else:
                yield from parts(one)

    return _LINES_APART.sub("\n", "".join(parts(element)).strip(_APART))


def within(parent: Element, name: str, wrappers: Container[str]) -> Iterator[Element]:
    """The rows of a table or the cells of a row, also in wrappers, but none of inner tables."""
    for element in parent:
        if element.tag == name:
            yield element
        elif element.tag in wrappers:
            yield from within(element, name, wrappers)


def number(value: str, default: int = 0) -> int:
    """A whole number in decimal digits; another one for any other text."""
    return int(value) if value.isascii() and value.isdecimal() and len(value) < 10 else default


_ROMAN = ((1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc"), (50, "l"),
          (40, "xl"), (10, "x"), (9, "ix"), (5, "v"), (4, "iv"), (1, "i"))  # fmt: skip
# greater numbers are shown as digits, as some programs do
_MOST = 5000
_PLACE = re.compile(r"%(\d)")
LEVELS = 9


def _letters(number: int) -> str:
    # after z comes aa, then bb
    return chr(97 + (number - 1) % 26) * (1 + (number - 1) // 26)


def _roman(number: int) -> str:
    found = ""
    for value, letters in _ROMAN:
        found += letters * (number // value)
        number %= value
    return found


def _ordinal(number: int) -> str:
    return "th" if number // 10 % 10 == 1 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")


_FORMATS: dict[str, Callable[[int], str]] = {
    "a": _letters,
    "A": lambda number: _letters(number).upper(),
    "i": _roman,
    "I": lambda number: _roman(number).upper(),
    "01": lambda number: f"{number:02}",
    "1st": lambda number: f"{number}{_ordinal(number)}",
}


def label(style: str, number: int) -> str:
    """A number in letters, Roman or Arabic digits: styles are named as HTML and ODF name them."""
    write = _FORMATS.get(style, str) if 0 < number <= _MOST else str
    return write(number)


class Level(NamedTuple):
    """How a list numbers the items of a level.

    Attributes:
        text: with ``%1`` for the number of the first level, and so on; empty if it shows none.
        style: of the number; see ``label``.
        start: the first number.
        restart: the lowest level whose items let this one begin again; 0 never, None any above it.
        is_legal: whether the numbers of all levels are shown in digits.
    """

    text: str
    style: str = "1"
    start: int = 1
    restart: int | None = None
    is_legal: bool = False


class Counter:
    """Counts the items of one list.

    Args:
        levels: from 1.
        numbers: the present ones by level, which lists of one kind share.
    """

    def __init__(self, levels: Mapping[int, Level], numbers: dict[int, int] | None = None) -> None:
        self.levels = levels
        self.numbers = {} if numbers is None else numbers

    def next(self, level: int, start: int | None = None) -> str:
        """What stands before the next item of a level, with a blank after it.

        Args:
            level: from 1.
            start: the item's number; None counts on.
        """
        known = self._of(level)
        for one in [one for one in self.numbers if one > level]:
            restart = self._of(one).restart
            if restart is None or level <= restart:
                del self.numbers[one]
        for one in range(1, level):
            # a level that is left out counts as used
            self.numbers.setdefault(one, self._of(one).start)
        counted = self.numbers[level] + 1 if level in self.numbers else known.start
        self.numbers[level] = counted if start is None else start

        def shown(place: re.Match[str]) -> str:
            one = self._of(int(place[1]))
            style = "1" if known.is_legal else one.style
            return label(style, self.numbers.get(int(place[1]), one.start))

        text = _PLACE.sub(shown, known.text).strip()
        return f"{text} " if text else ""

    def restart(self, level: int) -> None:
        """Let the next item of a level be its first."""
        self.numbers.pop(level, None)

    def _of(self, level: int) -> Level:
        return self.levels.get(level, Level(""))


# by Word's names; others are shown as digits
_STYLES = {
    "lowerLetter": "a",
    "upperLetter": "A",
    "lowerRoman": "i",
    "upperRoman": "I",
    "decimalZero": "01",
    "ordinal": "1st",
}
# letters of the fonts Symbol and Wingdings
_SYMBOLS = {
    **dict(enumerate("ΑΒΧΔΕΦΓΗΙϑΚΛΜΝΟΠΘΡΣΤΥςΩΞΨΖ", 0x41)),
    **dict(enumerate("αβχδεφγηιϕκλμνοπθρστυϖωξψζ", 0x61)),
    **{code: chr(code) for code in range(0x20, 0x40)},
    **dict(zip(b"\xa3\xa5\xae\xb0\xb1\xb3\xb4\xb7\xb9\xbb\xd6\xe5", "≤∞→°±≥×•≠≈√∑", strict=True)),
}
_WINGDINGS = dict(zip(b"\x6f\xa8\xfe\xfd\xfc\xfb\xe0\xe8\x4a\x4c", "☐☐☑☒✓✗→➔☺☹", strict=True))
# bullets that say something
CHECKS = "☐☑☒✓✗"
# styles that a style is based on, one after the other
_MOST_BASES = 20


def inherited(styles: Element, stated: Callable[[Element], T | None]) -> dict[str, T]:
    """What each style states, or the nearest of those that it is based on, by the style's id."""
    own = {
        one.get("styleId", ""): (stated(one), value(one, "basedOn")) for one in styles.iter("style")
    }
    found: dict[str, T] = {}
    for name in own:
        base, left = name, _MOST_BASES
        while left and base in own and own[base][0] is None:
            base, left = own[base][1], left - 1
        if base in own and (held := own[base][0]) is not None:
            found[name] = held
    return found


class Lists:
    """Counts the numbered paragraphs of a document in their order.

    Args:
        numbering: the part that defines the lists.
        styles: the part that defines the styles, which may belong to lists.
    """

    def __init__(self, numbering: Element, styles: Element) -> None:
        kinds = {
            one.get("abstractNumId", ""): Counter(_levels(one))
            for one in numbering.iter("abstractNum")
        }
        # a list may only name the style that another one defines
        linked = {
            value(one, "styleLink"): kinds[one.get("abstractNumId", "")]
            for one in numbering.iter("abstractNum")
        }
        for one in numbering.iter("abstractNum"):
            if link := value(one, "numStyleLink"):
                name = one.get("abstractNumId", "")
                kinds[name] = linked.get(link, kinds[name])
        self._counters: dict[str, Counter] = {}
        self._starts: dict[tuple[str, int], int] = {}
        for one in numbering.iter("num"):
            name, kind = one.get("numId", ""), value(one, "abstractNumId")
            if kind in kinds:
                # lists of one kind go on counting, also with levels of their own
                held = kinds[kind]
                self._counters[name] = Counter({**held.levels, **_levels(one)}, held.numbers)
            for override in one.iter("lvlOverride"):
                if start := value(override, "startOverride"):
                    self._starts[name, number(override.get("ilvl", "")) + 1] = number(start, 1)
        self._styles = inherited(styles, _numbered)
        # a level may name the style of the headings that it numbers
        self._of_style = {
            value(level, "pStyle"): number(level.get("ilvl", "")) + 1
            for level in numbering.iter("lvl")
        }

    def before(self, paragraph: Element) -> str:
        """What stands before a paragraph, with a blank after it; "" without a number."""
        style = value(paragraph, "pPr/pStyle")
        name, level = _place(paragraph.find("pPr/numPr"))
        if not name:
            base, name, stated = self._styles.get(style, ("", "", 0))
            level = level or self._of_style.get(style, 0) or self._of_style.get(base, 0) or stated
        counter = self._counters.get(name)
        if counter is None:
            return ""
        level = level or 1
        # an own start counts for the first paragraph of the list only
        return counter.next(level, self._starts.pop((name, level), None))


def _numbered(style: Element) -> tuple[str, str, int] | None:
    listed, level = _place(style.find("pPr/numPr"))
    return (style.get("styleId", ""), listed, level) if listed else None


def _levels(kind: Element) -> dict[int, Level]:
    found: dict[int, Level] = {}
    for one in kind.iter("lvl"):
        level = number(one.get("ilvl", "")) + 1
        style = value(one, "numFmt")
        text = value(one, "lvlText")
        if style == "bullet":
            font = value(one, "rPr/rFonts", "ascii")
            signs = "".join(symbol(font, ord(letter)) for letter in text)
            text = signs if signs and signs in CHECKS else ""
        if level <= LEVELS:
            start, restart = (value(one, name) for name in ("start", "lvlRestart"))
            found[level] = Level(
                "" if style == "none" else text,
                _STYLES.get(style, "1"),
                number(start),
                number(restart) if restart else None,
                is_on(one.find("isLgl")),
            )
    return found


def is_on(element: Element | None) -> bool:
    """Whether a property of Word is stated and not turned off."""
    return element is not None and element.get("val", "") not in ("0", "false", "off", "none")


def symbol(font: str, code: int) -> str:
    """The character of a letter in a font of symbols; "" for one that says nothing."""
    if not 0xF000 <= code <= 0xF0FF:
        if font.startswith("Wingdings") and code < 0x100:
            return _WINGDINGS.get(code, "")
        return chr(code) if code < 0x110000 else ""
    code -= 0xF000
    return (_SYMBOLS if font == "Symbol" else _WINGDINGS).get(code, "")


def _place(numbering: Element | None) -> tuple[str, int]:
    """The list of a paragraph or a style and the level in it, from 1; "" and 0 if unstated."""
    if numbering is None:
        return "", 0
    level = value(numbering, "ilvl")
    return value(numbering, "numId"), number(level) + 1 if level else 0
