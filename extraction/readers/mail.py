"""E-mail: the body, and attachments that are text."""

from dataclasses import replace
from email import policy
from email.message import EmailMessage, MIMEPart
from email.parser import BytesParser
from typing import BinaryIO

from extraction.building import Builder
from extraction.content import Content, Limits, UnreadableError
from extraction.readers import html
from extraction.readers.encoded import text_of


def read(stream: BinaryIO, limits: Limits) -> Content:
    """The body, as plain text if the message has it, and then each attachment of text."""
    message = BytesParser(EmailMessage, policy=policy.default).parse(stream)
    if not message.keys():
        raise UnreadableError("no e-mail: it has no header")
    builder = Builder(limits)
    body = message.get_body(("plain", "html"))
    if body is not None:
        builder.append(_part(body, limits))
    for number, part in enumerate(message.walk()):
        if number == limits.members:
            raise UnreadableError(f"more than {limits.members:,} parts")
        if part.is_attachment() and part.get_content_maintype() == "text":
            builder.heading(1, part.get_filename() or "")
            builder.append(_part(part, limits))
    subject = _header(message, "subject")
    date = getattr(_header(message, "date"), "datetime", None)
    content = builder.content(
        subject, _header(message, "from"), date.isoformat() if date is not None else None
    )
    # the name of an attachment is no title
    return content if subject else replace(content, title=None)


def _part(part: MIMEPart, limits: Limits) -> Content:
    content = part.get_payload(decode=True)
    if not isinstance(content, bytes):
        return Content("")
    if part.get_content_subtype() == "html":
        return html.content_of(content, limits)
    return Content(text_of(content, limits, part.get_content_charset()).strip())


def _header(message: EmailMessage, name: str) -> str | None:
    try:
        found: str | None = message[name]
    except (ValueError, IndexError, AttributeError, LookupError):
        # the library cannot parse every header that programs write
        return None
    return found
