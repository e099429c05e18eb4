"""E-mail: what its head says, the body, and attachments of kinds that are known."""

from __future__ import annotations

import base64
import codecs
import quopri
import re
from collections.abc import Iterator
from dataclasses import replace
from email import policy
from email.message import EmailMessage, MIMEPart
from email.parser import BytesParser, Parser
from io import BytesIO
from pathlib import PurePosixPath
from typing import BinaryIO

from docsplit.extraction.building import Builder, line
from docsplit.extraction.content import Content, Heading, Limits, UnreadableError
from docsplit.extraction.kinds import READERS, SOURCES, reader_of
from docsplit.extraction.readers import html
from docsplit.extraction.readers.encoded import text_of
from docsplit.extraction.sources import content_of

# messages that may stand in each other
_DEEPEST = 20
_MARK = re.compile(r"^>[ \t]?", re.M)
# the line or two before a quote that say who wrote
_WHO = re.compile(r"(?:^|\n)([^\n>][^\n]{0,200}(?:\n[^\n>][^\n]{0,200})?:)[ \t]*\Z")
# what Outlook and others write before a message, and the head that follows
_LINE = re.compile(
    r"^[ \t]*(?:-{2,}[^\n-]{1,60}-{2,}|_{8,})[ \t]*\n+(?=\*?[A-Z][\w ]{1,15}:\*?[ \t])", re.M
)


def with_headings(text: str, level: int) -> Iterator[Content]:
    """The parts of a text, with a heading before each message that it repeats at its end.

    A reply between quotes is left as it is: there, only ``>`` tells who says what.

    Args:
        text: of a message.
        level: of the heading of the message that it repeats.
    """
    headings: list[Heading] = []
    for inner in range(level, level + _DEEPEST):
        own, introduction, rest = _divided(text)
        yield Content(own, headings=headings)
        if not rest:
            return
        title = " ".join(introduction.split())
        headings = [Heading(0, inner, title or rest.split("\n")[0])]
        if title:
            yield Content(title, headings=headings)
            headings = []
        text = rest
    yield Content(text, headings=headings)


def _divided(text: str) -> tuple[str, str, str]:
    """A text before its first repeated message, the words that introduce it, and it."""
    found, quoted = _LINE.search(text), _quoted(text)
    if found is not None and found.start() < quoted:
        return text[: found.start()].rstrip(), "", text[found.end() :].strip()
    own, heading = text[:quoted].rstrip(), ""
    if quoted < len(text) and (who := _WHO.search(own)):
        own, heading = own[: who.start()].rstrip(), who[1]
    return own, heading, _MARK.sub("", text[quoted:]).strip()


def _quoted(text: str) -> int:
    """The first character of the quoted lines at the end of a text; its length without any."""
    first = place = len(text)
    for one in reversed(text.splitlines(keepends=True)):
        place -= len(one)
        if one.startswith(">"):
            first = place
        elif one.strip():
            break
    return first


# what begins a message in a mailbox, and the mark before such a line in a text
_FROM = re.compile(
    rb"(?:\A|\n\r?\n)From [^\r\n]{0,200}\d{4}[^\r\n]{0,40}\r?\n(?P<head>(?=[\w-]+:))"
)
_ESCAPED = re.compile(rb"^>(?=>*From )", re.M)
_BEFORE = re.compile(rb"\A(?:[ \t]*\r?\n)+")
_WIDE_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
# a line that divides parts, of which each begins with a head
_BOUNDARY = re.compile(
    r"^--([^\s\"\\][^\r\n\"\\]{0,99}?)[ \t]*\r?\n(?=content-[\w-]+:)", re.M | re.I
)
# characters of a plain text that may say only that there is a page, and how much longer this is
_STUB, _LONGER = 400, 3
_SHOWN = ("From", "To", "Cc", "Date")
# a line that goes on in the next one (RFC 3676), unless it is the mark of a signature
_FLOWED = re.compile(r"(?<!^--) \n(?=[^>\n])", re.M)


def read(stream: BinaryIO, limits: Limits) -> Content:
    """The head and the body, as plain text if the message has it, and then the attachments."""
    message = _parsed(stream.read())
    if not message.keys():
        raise UnreadableError("no e-mail: it has no header")
    builder = Builder(limits)
    _Mail(builder, limits).add(message, 1)
    subject, date = _header(message, "subject"), _header(message, "date")
    moment = getattr(date, "datetime", None)
    content = builder.content(
        subject, _header(message, "from"), moment.isoformat() if moment is not None else None
    )
    # the name of an attachment is no title
    return content if subject else replace(content, title=None)


def read_box(stream: BinaryIO, limits: Limits) -> Content:
    """The messages of a mailbox, one after the other."""
    content = stream.read()
    found = list(_FROM.finditer(content))
    starts = [one.start("head") for one in found] or [0]
    ends = [*(one.start() for one in found[1:]), len(content)]
    builder = Builder(limits)
    mail = _Mail(builder, limits)
    for start, end in zip(starts, ends, strict=True):
        message = _parsed(_ESCAPED.sub(b"", content[start:end]))
        if not message.keys():
            raise UnreadableError("no mailbox: a message has no header")
        mail.add(message, 1)
    return builder.content()


def read_page(stream: BinaryIO, limits: Limits) -> Content:
    """The page that a browser saved as a message (MHTML)."""
    message = _parsed(stream.read())
    for part in message.walk():
        content = part.get_payload(decode=True)
        if part.get_content_type() == "text/html" and isinstance(content, bytes):
            return html.content_of(content, limits, part.get_content_charset())
    raise UnreadableError("no page of HTML in it")


def _parsed(content: bytes) -> EmailMessage:
    """A message; marks of an encoding and blank lines may stand before its head."""
    if content.startswith(_WIDE_MARKS) or b"\0" in content[:4]:
        content = text_of(content, Limits()).encode()
    content = _BEFORE.sub(b"", content.removeprefix(codecs.BOM_UTF8), count=1)
    return BytesParser(EmailMessage, policy=policy.default).parsebytes(content)


def _mended(part: EmailMessage | MIMEPart) -> EmailMessage | MIMEPart:
    """A multipart whose boundary is missing or another one, by the boundary that its text has.

    Without one it is plain text.
    """
    text = str(part.get_payload())
    if found := _BOUNDARY.search(text):
        head = f'Content-Type: multipart/{part.get_content_subtype()}; boundary="{found[1]}"'
        part = Parser(EmailMessage, policy=policy.default).parsestr(f"{head}\n\n{text}")
    if not part.is_multipart():
        part.replace_header("Content-Type", "text/plain")
    return part


def _inner(part: MIMEPart) -> Iterator[EmailMessage | MIMEPart]:
    """The attached messages, also of programs that encode them as a whole."""
    encoding = str(part.get("content-transfer-encoding") or "").strip().lower()
    for inner in part.iter_parts():
        payload = inner.get_payload()
        if encoding in ("base64", "quoted-printable") and isinstance(payload, str):
            lines = [*(f"{name}: {value}" for name, value in inner.raw_items()), "", payload]
            content = "\n".join(lines).lstrip("\n").encode("ascii", "surrogateescape")
            decode = base64.b64decode if encoding == "base64" else quopri.decodestring
            try:
                yield _parsed(decode(content))
            except ValueError:
                yield inner
        else:
            yield inner


class _Mail:
    """Adds messages to a builder, within the limits of one file."""

    def __init__(self, builder: Builder, limits: Limits) -> None:
        self._builder = builder
        self._limits = limits
        self._parts = 0

    def add(self, message: EmailMessage | MIMEPart, level: int) -> None:
        """Add a message, whose subject is a heading of a level."""
        parts = list(self._leaves(message))
        shown = {name: line(_header(message, name)) for name in _SHOWN}
        shown["Attachments"] = ", ".join(name for one in parts if (name := _name(one)))
        self._builder.heading(level, _header(message, "subject") or "")
        self._builder.add("\n".join(f"{name}: {held}" for name, held in shown.items() if held))
        # a body comes before what is attached to it
        for part in sorted(parts, key=_is_attached):
            if part.get_content_maintype() == "message":
                for inner in _inner(part):
                    self.add(inner, level + 1)
            elif _is_attached(part):
                self._attachment(part, level + 1)
            elif part.get_content_maintype() == "text":
                for own in self._body(part, level + 1):
                    self._builder.append(own)

    def _leaves(self, part: EmailMessage | MIMEPart) -> Iterator[MIMEPart]:
        """Bodies, attachments and attached messages; of several forms of a body the best one."""
        self._parts += 1
        if self._parts > self._limits.members:
            raise UnreadableError(f"more than {self._limits.members:,} parts")
        if part.get_content_maintype() == "multipart" and not part.is_multipart():
            yield from self._leaves(_mended(part))
        elif not part.is_multipart() or part.get_content_maintype() == "message":
            yield part
        elif part.get_content_subtype() == "alternative":
            forms = list(part.iter_parts())
            best = self._best(forms)
            for one in forms:
                leaves = self._leaves(one)
                # a program may put attachments into one form only
                yield from leaves if one is best else filter(_is_no_form, leaves)
        else:
            for one in part.iter_parts():
                yield from self._leaves(one)

    def _body(self, part: MIMEPart, level: int) -> Iterator[Content]:
        found = _text(part, self._limits, ".txt")
        if part.get_content_subtype() == "html":
            return iter((found,))
        is_flowed = part.get_param("format") == "flowed"
        text = _FLOWED.sub(" ", found.text) if is_flowed else found.text
        return with_headings(text.strip(), level)

    def _attachment(self, part: MIMEPart, level: int) -> None:
        content = part.get_payload(decode=True)
        if not isinstance(content, bytes):
            return
        kind = PurePosixPath(_name(part).lower()).suffix
        page = kind in (".html", ".htm") and part.get_content_type() == "text/html"
        try:
            # the header of a page may state its encoding
            if kind in READERS and not page:
                found = reader_of(kind)(BytesIO(content), self._limits)
            elif kind in SOURCES or part.get_content_maintype() == "text":
                found = _text(part, self._limits, kind if kind in SOURCES else ".txt")
            else:
                return
        except UnreadableError:
            # the message names it
            return
        self._builder.heading(level, _name(part))
        self._builder.append(found)

    def _best(self, forms: list[MIMEPart]) -> MIMEPart | None:
        """The first form in plain text that says something, else the last one that is a page.

        A few words in plain text may only say that there is a page.
        """
        forms = [one for one in forms if not _is_no_form(one)]
        pages = [one for one in forms if one.is_multipart() or one.get_content_subtype() == "html"]
        last = next(reversed(pages or forms), None)
        for one in forms:
            if one.get_content_type() == "text/plain" and (own := self._length(one)):
                shown = last.walk() if last is not None and own < _STUB else ()
                page = next((one for one in shown if one.get_content_type() == "text/html"), None)
                is_stub = page is not None and _LONGER * own < self._length(page)
                return last if is_stub else one
        return last

    def _length(self, part: MIMEPart) -> int:
        try:
            return len(_text(part, self._limits, ".txt").text.strip())
        except UnreadableError:
            return 0


def _text(part: MIMEPart, limits: Limits, kind: str) -> Content:
    content = part.get_payload(decode=True)
    if not isinstance(content, bytes):
        return Content("")
    charset = part.get_content_charset()
    if part.get_content_subtype() == "html":
        return html.content_of(content, limits, charset)
    text = text_of(content, limits, charset)
    return content_of(kind, text.replace("\r\n", "\n"))


def _is_attached(part: MIMEPart) -> bool:
    return part.is_attachment() or bool(_name(part)) or part.get_content_maintype() == "message"


def _is_no_form(part: MIMEPart) -> bool:
    """Whether a part within several forms of a body is an attachment; a form may have a name."""
    is_text = part.get_content_maintype() == "text"
    return _is_attached(part) and not (is_text and part.get_content_disposition() is None)


def _name(part: MIMEPart) -> str:
    return line(part.get_filename()) or ""


def _header(message: EmailMessage | MIMEPart, name: str) -> str | None:
    try:
        found: str | None = message[name]
    except (ValueError, IndexError, AttributeError, LookupError):
        # the library cannot parse every header that programs write
        return None
    if found is None or "\ufffd" not in found:
        return found
    # raw letters, which the library does not decode
    raw = next(value for key, value in message.raw_items() if key.lower() == name.lower())
    content = str(raw).encode("utf-8", "surrogateescape")
    text = text_of(content, Limits(), message.get_content_charset() or "iso-8859-1")
    return str(policy.default.header_factory(name, " ".join(text.split())))
