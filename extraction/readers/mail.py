"""E-mail: the body, and attachments that are text."""

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
    content = builder.content(message["subject"], message["from"], _date(message))
    # the name of an attachment is no title
    return content if message["subject"] else _untitled(content)


def _part(part: MIMEPart, limits: Limits) -> Content:
    content = part.get_payload(decode=True)
    if not isinstance(content, bytes):
        return Content("")
    if part.get_content_subtype() == "html":
        return html.content_of(content, limits)
    return Content(text_of(content, limits, part.get_content_charset()).strip())


def _date(message: EmailMessage) -> str | None:
    moment = getattr(message["date"], "datetime", None)
    return moment.isoformat() if moment is not None else None


def _untitled(content: Content) -> Content:
    return Content(content.text, None, content.author, content.date, [], content.headings)
