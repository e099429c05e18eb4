"""Office files and EPUB: a zip archive of XML parts, read within bounds."""

import posixpath
import zipfile
import zlib
from collections.abc import Iterator
from typing import BinaryIO
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
