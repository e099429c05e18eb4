"""TODO."""

import posixpath
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import BinaryIO, NamedTuple
from urllib.parse import unquote
from xml.etree.ElementTree import Element

from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import ParseError, fromstring

from docsplit.extraction.building import Builder
from docsplit.extraction.content import Content, Limits, UnreadableError

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
            if local(self.xml(name)) == posixpath.splitext(posixpath.basename(needed))[0]:
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
        if not content:
            return Element("missing")
        try:
            found: Element = fromstring(content)
        except DefusedXmlException as error:
            raise UnreadableError("its XML defines entities") from error
        except (ParseError, ValueError, LookupError) as error:
            raise UnreadableError(f"a damaged {self._kind} file: no well-formed XML") from error
        return found

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
        stated = {local(one): one.text or "" for one in self.xml(_CORE)}
        return builder.content(
            stated.get("title") or title, stated.get("creator"), stated.get("created")
        )


def path(folder: str, target: str) -> str:
    """The name of the part that a part in a folder refers to."""
    return posixpath.normpath(posixpath.join("/", folder, unquote(target))).lstrip("/")


def local(element: Element) -> str:
    """An element's name without its namespace; empty for a comment."""
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""


def attribute(element: Element | None, name: str) -> str:
    """An attribute's value, whatever its namespace; empty if it is missing."""
    if element is not None:
        for key, value in element.attrib.items():
            if key.rpartition("}")[2] == name:
                return value
    return ""


def number(value: str, default: int = 0) -> int:
    """A whole number in decimal digits; another one for any other text."""
    return int(value) if value.isascii() and value.isdecimal() and len(value) < 10 else default


def child(element: Element, *names: str) -> Element | None:
    """The first child of a name, its first child of the next name, and so on."""
    found: Element | None = element
    for name in names:
        found = (
            next((one for one in found if local(one) == name), None) if found is not None else None
        )
    return found


def below(element: Element, name: str) -> Iterator[Element]:
    """All elements of a name inside an element, in order."""
    return (one for one in element.iter() if local(one) == name)


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


_FORMATS: dict[str, Callable[[int], str]] = {
    "a": _letters,
    "A": lambda number: _letters(number).upper(),
    "i": _roman,
    "I": lambda number: _roman(number).upper(),
    "01": lambda number: f"{number:02}",
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
    """

    text: str
    style: str = "1"
    start: int = 1


class Counter:
    """Counts the items of one list.

    Args:
        levels: from 1.
    """

    def __init__(self, levels: Mapping[int, Level]) -> None:
        self._levels = levels
        self._numbers: dict[int, int] = {}

    def next(self, level: int, start: int | None = None) -> str:
        """What stands before the next item of a level, with a blank after it.

        Args:
            level: from 1.
            start: the item's number; None counts on.
        """
        known = self._levels.get(level, Level(""))
        self._numbers = {one: held for one, held in self._numbers.items() if one <= level}
        counted = self._numbers[level] + 1 if level in self._numbers else known.start
        self._numbers[level] = counted if start is None else start
        shown = _PLACE.sub(self._shown, known.text).strip()
        return f"{shown} " if shown else ""

    def restart(self, level: int) -> None:
        """Let the next item of a level be its first."""
        self._numbers.pop(level, None)

    def _shown(self, place: re.Match[str]) -> str:
        level = int(place[1])
        known = self._levels.get(level, Level(""))
        return label(known.style, self._numbers.get(level, known.start))


# by Word's names; others are shown as digits
_STYLES = {
    "lowerLetter": "a",
    "upperLetter": "A",
    "lowerRoman": "i",
    "upperRoman": "I",
    "decimalZero": "01",
}
_WITHOUT = {"bullet", "none"}
# styles that a style is based on, one after the other
_MOST_BASES = 20


def lineages(styles: Element) -> dict[str, list[str]]:
    """For the id of each style itself, and then the styles that it is based on in turn."""
    based = {
        attribute(style, "styleId"): attribute(child(style, "basedOn"), "val")
        for style in below(styles, "style")
    }
    found = {}
    for name in based:
        line = [name]
        while len(line) < _MOST_BASES and line[-1] in based and based[line[-1]]:
            line.append(based[line[-1]])
        found[name] = line
    return found


class Lists:
    """Counts the numbered paragraphs of a document in their order.

    Args:
        numbering: the part that defines the lists.
        styles: the part that defines the styles, which may belong to lists.
    """

    def __init__(self, numbering: Element, styles: Element) -> None:
        counters = {
            attribute(one, "abstractNumId"): Counter(_levels(one))
            for one in below(numbering, "abstractNum")
        }
        self._counters: dict[str, Counter] = {}
        self._starts: dict[tuple[str, int], int] = {}
        for one in below(numbering, "num"):
            name, kind = attribute(one, "numId"), attribute(child(one, "abstractNumId"), "val")
            if kind in counters:
                # lists of one kind go on counting
                self._counters[name] = counters[kind]
            for override in below(one, "lvlOverride"):
                if start := attribute(child(override, "startOverride"), "val"):
                    self._starts[name, number(attribute(override, "ilvl")) + 1] = number(start, 1)
        own = {
            attribute(style, "styleId"): _place(child(style, "pPr", "numPr"))
            for style in below(styles, "style")
        }
        numbered = {name for name, (listed, _) in own.items() if listed}
        self._styles = {
            name: (base, *own[base])
            for name, line in lineages(styles).items()
            if (base := next((one for one in line if one in numbered), None)) is not None
        }
        # a level may name the style of the headings that it numbers
        self._of_style = {
            attribute(child(level, "pStyle"), "val"): number(attribute(level, "ilvl")) + 1
            for level in below(numbering, "lvl")
        }

    def before(self, paragraph: Element) -> str:
        """What stands before a paragraph, with a blank after it; "" without a number."""
        style = attribute(child(paragraph, "pPr", "pStyle"), "val")
        name, level = _place(child(paragraph, "pPr", "numPr"))
        if not name:
            base, name, stated = self._styles.get(style, ("", "", 0))
            level = level or self._of_style.get(style, 0) or self._of_style.get(base, 0) or stated
        counter = self._counters.get(name)
        if counter is None:
            return ""
        level = level or 1
        # an own start counts for the first paragraph of the list only
        return counter.next(level, self._starts.pop((name, level), None))


def _levels(kind: Element) -> dict[int, Level]:
    found: dict[int, Level] = {}
    for one in below(kind, "lvl"):
        level = number(attribute(one, "ilvl")) + 1
        style = attribute(child(one, "numFmt"), "val")
        if level <= LEVELS:
            text = "" if style in _WITHOUT else attribute(child(one, "lvlText"), "val")
            start = number(attribute(child(one, "start"), "val"))
            found[level] = Level(text, _STYLES.get(style, "1"), start)
    return found


def _place(numbering: Element | None) -> tuple[str, int]:
    """The list of a paragraph or a style and the level in it, from 1; "" and 0 if unstated."""
    if numbering is None:
        return "", 0
    level = attribute(child(numbering, "ilvl"), "val")
    return attribute(child(numbering, "numId"), "val"), number(level) + 1 if level else 0
