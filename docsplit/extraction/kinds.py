"""The kinds of files, by the end of their names. Imports no reader by itself."""

from __future__ import annotations

from importlib import import_module
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Callable

    from docsplit.extraction.content import Content, Limits

# values are modules of ``docsplit.extraction.readers``, with the function if it is not called read
READERS = {
    ".pdf": "pdf",
    ".docx": "office",
    ".docm": "office",
    ".pptx": "office.read_slides",
    ".pptm": "office.read_slides",
    ".xlsx": "sheets",
    ".xlsm": "sheets",
    ".xls": "sheets.read_old",
    ".ods": "sheets.read_opendocument",
    ".odt": "opendocument",
    ".odp": "opendocument",
    ".epub": "html.read_book",
    ".html": "html",
    ".htm": "html",
    ".xhtml": "html.read_xhtml",
    ".eml": "mail",
    ".rtf": "rtf",
}
SOURCES = (".md", ".rst", ".txt")
ARCHIVES = (".zip", ".tar")
# formats that no kept library reads, and what to do
OLD = {
    ".doc": "an old format of Word: save it as .docx",
    ".xlsb": "a binary format of Excel: save it as .xlsx",
    ".ppt": "an old format of PowerPoint: save it as .pptx",
    ".msg": "a format of Outlook: save it as .eml",
}
KINDS = (*READERS, *SOURCES, *ARCHIVES)
# how one file of these kinds may be packed
PACKINGS = (".gz", ".bz2")


def kind_of(name: str) -> tuple[str, str]:
    """The kind of a file, known or not, and its packing or "": ``.txt`` and ``.gz``."""
    path = PurePosixPath(name.lower())
    if path.suffix == ".tgz":
        return ".tar", ".gz"
    if path.suffix in PACKINGS:
        return PurePosixPath(path.stem).suffix, path.suffix
    return path.suffix, ""


def reader_of(kind: str) -> Callable[[BinaryIO, Limits], Content]:
    """The function that reads files of a kind; this imports its parsers."""
    module, _, function = READERS[kind].partition(".")
    found: Callable[[BinaryIO, Limits], Content] = getattr(
        import_module(f"docsplit.extraction.readers.{module}"), function or "read"
    )
    return found
