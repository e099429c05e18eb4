"""RTF: the text, and what its information group states."""

import re
from typing import BinaryIO

from striprtf.striprtf import rtf_to_text

from docsplit.extraction.building import Builder
from docsplit.extraction.content import Content, Limits, UnreadableError

_STATED = r"\{{\\{0} ([^{{}}]*)\}}"
# groups with text that the library leaves out: of these, notes and text boxes are read
_GROUP = re.compile(r"\{(?:\\\*)?\\(?:(footnote|shptxt)|(?:header|footer)[lrf]?)(?![a-z]) ?")
_BRACE = re.compile(r"\\[\\{}]|[{}]")
_CREATED = re.compile(r"\{\\creatim\\yr(\d{4})\\mo(\d{1,2})\\dy(\d{1,2})")


def read(stream: BinaryIO, limits: Limits) -> Content:
    """The text and then its notes and text boxes, without pictures, headers and footers."""
    source = stream.read().decode("latin-1")
    if not source.lstrip().startswith("{\\rtf"):
        raise UnreadableError("no RTF file")
    builder = Builder(limits)
    builder.add(rtf_to_text(_notes_last(source), errors="replace"))
    created = _CREATED.search(source)
    date = "{}-{:0>2}-{:0>2}".format(*created.groups()) if created else None
    return builder.content(_stated(source, "title"), _stated(source, "author"), date)


def _notes_last(source: str) -> str:
    """The source with its notes and text boxes as paragraphs at the end."""
    parts: list[str] = []
    notes: list[str] = []
    place = 0
    for found in _GROUP.finditer(source):
        if found.start() < place:
            continue
        end = _end(source, found.end())
        if found[1]:
            parts.append(source[place : found.start()])
            notes.append(f"\\par {{{source[found.end() : end]}")
        else:
            parts.append(source[place:end])
        place = end
    if not notes:
        return source
    rest = source[place:].rstrip("\0\r\n\t ").removesuffix("}")
    return "".join([*parts, rest, *notes, "}"])


def _end(source: str, place: int) -> int:
    """Where the group ends that a place is in."""
    depth = 1
    for found in _BRACE.finditer(source, place):
        depth += {"{": 1, "}": -1}.get(found[0], 0)
        if not depth:
            return found.end()
    return len(source)


def _stated(source: str, name: str) -> str | None:
    found = re.search(_STATED.format(name), source)
    return rtf_to_text("{\\rtf1 " + found[1] + "}", errors="replace") if found else None
