"""The kinds of files, by the end of their names. Imports no reader."""

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
