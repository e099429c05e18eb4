"""RTF: the text, and what its information group states."""

import re
from typing import BinaryIO

from striprtf.striprtf import rtf_to_text

from extraction.building import Builder
from extraction.content import Content, Limits, UnreadableError

_STATED = r"\{{\\{0} ([^{{}}]*)\}}"
_CREATED = re.compile(r"\{\\creatim\\yr(\d{4})\\mo(\d{1,2})\\dy(\d{1,2})")


def read(stream: BinaryIO, limits: Limits) -> Content:
    """The text without pictures, headers and footers."""
    source = stream.read().decode("latin-1")
    if not source.lstrip().startswith("{\\rtf"):
        raise UnreadableError("no RTF file")
    builder = Builder(limits)
    builder.add(rtf_to_text(source, errors="replace"))
    created = _CREATED.search(source)
    date = "{}-{:0>2}-{:0>2}".format(*created.groups()) if created else None
    return builder.content(_stated(source, "title"), _stated(source, "author"), date)


def _stated(source: str, name: str) -> str | None:
    found = re.search(_STATED.format(name), source)
    return rtf_to_text("{\\rtf1 " + found[1] + "}", errors="replace") if found else None
