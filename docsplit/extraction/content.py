"""What a reader finds in a file, and within which limits."""

from dataclasses import dataclass, field
from typing import NamedTuple


class UnreadableError(Exception):
    """The file cannot be read; the message is the reason and the remedy, for the user."""


class StartError(Exception):
    """No file can be read: the message says why."""


class Heading(NamedTuple):
    """A heading in a text.

    Attributes:
        start: its first character.
        level: 1 is the highest.
        title: its text.
    """

    start: int
    level: int
    title: str


@dataclass(frozen=True, slots=True)
class Content:
    """What a file holds.

    Attributes:
        text: without what repeats on each page.
        title, author: as the file states them; the title may be the first heading.
        date: of the file's creation, or of the message, in ISO 8601.
        pages: the first character of each page or slide; empty if the file has no pages.
        headings: in the order of the text.
        scans: numbers, from 0, of pages that show text as a picture, which nobody has read yet.
        refusal: why the text is no use without them; None if it is.
    """

    text: str
    title: str | None = None
    author: str | None = None
    date: str | None = None
    pages: list[int] = field(default_factory=list)
    headings: list[Heading] = field(default_factory=list)
    scans: list[int] = field(default_factory=list)
    refusal: str | None = None


# the first message of the process that reads files: whether it can deny its children system calls
DENIED, FREE = b"denied", b"free"
# the beginning of that message if it cannot recognise text; the reason follows
ABSENT = b"absent "


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on the reading of one file.

    Attributes:
        memory: bytes that the reader may take.
        seconds: of processor time; twice as many may pass, or ten times as many for a scan.
        pages: of a PDF.
        characters: of the text.
        members: files of an archive, or parts of an office file.
        unpacked: bytes of all members of an archive, or of all parts of an office file.
        scans: pages of a PDF whose text is recognised.
        scan_seconds: that may pass until all of them are; each may take ``seconds``.
    """

    memory: int = 1 << 30
    seconds: int = 60
    pages: int = 10_000
    characters: int = 20_000_000
    members: int = 10_000
    unpacked: int = 1 << 29
    scans: int = 200
    scan_seconds: int = 3600
