"""Libraries that read files: fidelity and speed, without confinement.

    pip install lxml_html_clean mammoth openpyxl pdfminer.six pypdf trafilatura
    python -m benchmarks.files.libraries --files 30

A library that is not installed is left out.
"""

from __future__ import annotations

import argparse
import io
import time
from collections.abc import Callable
from html import unescape
from importlib import import_module
from re import sub

from benchmarks.files.fidelity import fidelity
from benchmarks.files.making import made
from benchmarks.files.source import sources
from docsplit.extraction.content import Limits

Reader = Callable[[bytes], str]


def main() -> None:
    """Read and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", type=int, default=30)
    given = parser.parse_args()
    print("| kind | library | fidelity | MB of text a second of CPU |\n|---|---|---:|---:|")
    for kind, readers in READERS.items():
        files = [made(kind, source) for source in sources(given.files)]
        for name, read in readers.items():
            try:
                # imports it
                read(files[0].content)
            except ImportError:
                continue
            began = time.process_time()
            texts = [read(file.content) for file in files]
            seconds = time.process_time() - began
            pairs = zip(files, texts, strict=True)
            mean = sum(fidelity(file.text, text) for file, text in pairs) / len(files)
            size = sum(map(len, texts)) / 1e6
            print(f"| {kind} | {name} | {mean:.4f} | {size / seconds:.2f} |")


def _own(name: str) -> Reader:
    module = import_module(f"docsplit.extraction.readers.{name}")
    return lambda content: str(module.read(io.BytesIO(content), Limits()).text)


def _pdfminer(content: bytes) -> str:
    return str(import_module("pdfminer.high_level").extract_text(io.BytesIO(content)))


def _pypdf(content: bytes) -> str:
    pages = import_module("pypdf").PdfReader(io.BytesIO(content)).pages
    return "\n".join(page.extract_text() for page in pages)


def _python_docx(content: bytes) -> str:
    document = import_module("docx").Document(io.BytesIO(content))
    return "\n".join(paragraph.text for paragraph in document.paragraphs)


def _mammoth(content: bytes) -> str:
    html = import_module("mammoth").convert_to_html(io.BytesIO(content)).value
    return unescape(sub(r"<[^>]+>", " ", html))


def _python_pptx(content: bytes) -> str:
    slides = import_module("pptx").Presentation(io.BytesIO(content)).slides
    shapes = (shape for slide in slides for shape in slide.shapes if shape.has_text_frame)
    return "\n".join(shape.text_frame.text for shape in shapes)


def _openpyxl(content: bytes) -> str:
    book = import_module("openpyxl").load_workbook(io.BytesIO(content), read_only=True)
    cells = (cell for sheet in book for row in sheet.values for cell in row if cell is not None)
    return "Blocks\n" + "\n".join(map(str, cells))


def _trafilatura(content: bytes) -> str:
    return import_module("trafilatura").extract(content.decode("latin-1")) or ""


READERS: dict[str, dict[str, Reader]] = {
    ".pdf": {"pypdfium2 (ours)": _own("pdf"), "pdfminer.six": _pdfminer, "pypdf": _pypdf},
    ".docx": {"defusedxml (ours)": _own("word"), "python-docx": _python_docx, "mammoth": _mammoth},
    ".pptx": {"defusedxml (ours)": _own("slides"), "python-pptx": _python_pptx},
    ".xlsx": {"python-calamine (ours)": _own("sheets"), "openpyxl": _openpyxl},
    ".html": {"selectolax (ours)": _own("html"), "trafilatura": _trafilatura},
}


if __name__ == "__main__":
    main()
