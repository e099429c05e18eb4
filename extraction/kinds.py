"""The kinds of files, by the end of their names. Imports no reader."""

from pathlib import PurePosixPath

# values are modules of ``extraction.readers``
READERS = {
    ".pdf": "pdf",
    ".docx": "word",
    ".pptx": "slides",
    ".xlsx": "sheets",
    ".odt": "opendocument",
    ".epub": "epub",
    ".html": "html",
    ".htm": "html",
    ".xhtml": "html",
    ".eml": "mail",
    ".rtf": "rtf",
}
SOURCES = (".md", ".rst", ".txt")
ARCHIVES = (".zip", ".tar")
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
