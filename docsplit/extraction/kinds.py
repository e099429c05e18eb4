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
    **dict.fromkeys((".docx", ".docm", ".dotx", ".dotm"), "office"),
    **dict.fromkeys((".pptx", ".pptm", ".ppsx", ".ppsm", ".potx", ".potm"), "office.read_slides"),
    **dict.fromkeys((".xlsx", ".xlsm", ".xltx", ".xltm"), "sheets"),
    ".xls": "sheets.read_old",
    **dict.fromkeys((".ods", ".ots"), "sheets.read_opendocument"),
    **dict.fromkeys((".odt", ".ott", ".odp", ".otp"), "opendocument"),
    ".epub": "html.read_book",
    **dict.fromkeys((".html", ".htm"), "html"),
    ".xhtml": "html.read_xhtml",
    **dict.fromkeys((".xml", ".nxml"), "html.read_article"),
    ".eml": "mail",
    ".mbox": "mail.read_box",
    **dict.fromkeys((".mhtml", ".mht"), "mail.read_page"),
    ".rtf": "rtf",
}
SOURCES = (".md", ".markdown", ".mdown", ".rst", ".txt", ".text", ".tex")
ARCHIVES = (".zip", ".tar")
_CONVERT = "for example with LibreOffice"
# formats that no kept library reads, and what to do
OLD = {
    ".doc": "an old format of Word: save it as .docx",
    ".dot": "an old format of Word: save it as .docx",
    ".xlsb": "a binary format of Excel: save it as .xlsx",
    ".ppt": "an old format of PowerPoint: save it as .pptx",
    ".pps": "an old format of PowerPoint: save it as .pptx",
    ".msg": "a format of Outlook: save it as .eml",
    ".pages": "a format of Pages: save it as .docx",
    ".key": "a format of Keynote: save it as .pptx",
    ".numbers": "a format of Numbers: save it as .xlsx",
    ".wpd": f"a format of WordPerfect: save it as .docx, {_CONVERT}",
    ".fodt": f"a flat form of OpenDocument: save it as .odt, {_CONVERT}",
    ".ps": "PostScript: save it as .pdf, for example with ps2pdf",
    ".djvu": "a format of scans: save it as .pdf, for example with ddjvu",
    ".mobi": "a format of Kindle: save it as .epub, for example with Calibre",
    ".azw3": "a format of Kindle: save it as .epub, for example with Calibre",
    ".7z": "an archive of another kind: unpack it, or pack it as .zip",
    ".rar": "an archive of another kind: unpack it, or pack it as .zip",
}
KINDS = (*READERS, *SOURCES, *ARCHIVES)
# modules that the readers import; the extra ``files`` brings them
PACKAGES = ("charset_normalizer", "defusedxml", "pypdfium2", "python_calamine", "selectolax")
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
