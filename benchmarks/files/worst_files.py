"""Malformed and hostile files: small ones that small limits refuse, and some that take long.

``tests/extraction/test_hostile.py`` expects the reasons. ``benchmarks/files/hostile.py`` uploads
the others.
"""

from __future__ import annotations

import gzip
import io
import os
import struct
import zipfile
from collections.abc import Callable

from PIL import Image
from reportlab.lib.pdfencrypt import StandardEncryption
from reportlab.lib.utils import ImageReader
from reportlab.pdfgen.canvas import Canvas

from benchmarks.files.making import KINDS, made, packed
from benchmarks.files.source import sources

[SOURCE] = sources(1)
FILES = {kind: made(kind, SOURCE).content for kind in KINDS}
WORD = "word/document.xml"


def replaced(content: bytes, name: str, part: bytes) -> bytes:
    """An office file with another content of one part."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return packed({**{one: archive.read(one) for one in archive.namelist()}, name: part})


def canvas(draw: Callable[[Canvas], None], **options: object) -> bytes:
    target = io.BytesIO()
    made_by = Canvas(target, **options)
    draw(made_by)
    made_by.save()
    return target.getvalue()


def scan(page: Canvas) -> None:
    page.drawImage(ImageReader(Image.new("L", (40, 40), 128)), 0, 0)


def leaf(page: Canvas) -> None:
    for _ in range(21):
        page.showPage()


def unmapped() -> bytes:
    """A PDF whose font has shapes without names."""
    names = " ".join(f"/g{n}" for n in range(1, 27))
    shapes = " ".join(f"/g{n} 6 0 R" for n in range(1, 27))
    font = (
        "<</Type/Font/Subtype/Type3/FontBBox[0 0 500 500]/FontMatrix[.001 0 0 .001 0 0]"
        f"/FirstChar 1/LastChar 26/Widths[{'500 ' * 26}]/CharProcs<<{shapes}>>"
        f"/Encoding<</Type/Encoding/Differences[1 {names}]>>>>"
    )
    text = b"BT /F 20 Tf 50 500 Td (%s) Tj ET" % bytes([*range(1, 9), *range(14, 27)])
    shape = b"500 0 0 0 400 400 d1 0 0 400 400 re f"
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 600]/Contents 4 0 R"
        b"/Resources<</Font<</F 5 0 R>>>>>>",
        b"<</Length %d>>stream\n%s\nendstream" % (len(text), text),
        font.encode(),
        b"<</Length %d>>stream\n%s\nendstream" % (len(shape), shape),
    ]
    numbered = (b"%d 0 obj\n%s\nendobj\n" % one for one in enumerate(objects, 1))
    return b"%PDF-1.4\n" + b"".join(numbered) + b"trailer<</Root 1 0 R>>"


def entities() -> bytes:
    """XML whose entities grow to gigabytes."""
    lines = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 12))
    return f'<!DOCTYPE d [<!ENTITY e0 "{"x" * 100}">{lines}]><d>&e11;</d>'.encode()


def external(path: str) -> bytes:
    return f'<!DOCTYPE d [<!ENTITY e SYSTEM "file://{path}">]><d><p><t>&e;</t></p></d>'.encode()


def claimed(size: int) -> bytes:
    """A zip archive whose directory claims another size of its one member."""
    whole = bytearray(packed({"a.txt": "A text."}))
    place = whole.index(b"PK\1\2") + 24
    whole[place : place + 4] = struct.pack("<I", size)
    return bytes(whole)


def bomb(size: int, name: str = "a.txt") -> bytes:
    return packed({name: b" " * size})


# name, ending of the file, its content, and the beginning of the reason, within small limits
HOSTILE: dict[str, tuple[str, Callable[[], bytes], str]] = {
    "no PDF": (".pdf", lambda: b"PK" + FILES[".docx"][2:], "no PDF file"),
    "a damaged PDF": (".pdf", lambda: b"%PDF-1.7\n" + os.urandom(2000), "a damaged PDF file"),
    "an encrypted PDF": (
        ".pdf",
        lambda: canvas(lambda page: page.drawString(9, 9, "x"), encrypt=StandardEncryption("key")),
        "encrypted; save it without a password",
    ),
    "a scan": (".pdf", lambda: canvas(scan), "a scan without text: install tesseract, or"),
    "fonts without a map to Unicode": (".pdf", unmapped, "its fonts do not say which characters"),
    "an empty PDF": (".pdf", lambda: canvas(lambda page: page.showPage()), "it holds no text"),
    "a PDF of many pages": (".pdf", lambda: canvas(leaf), "21 pages; the limit is 20: split it"),
    "a DOCX that is a PDF": (".docx", lambda: FILES[".pdf"], "no DOCX file, or a damaged one"),
    "a DOCX that is an XLSX": (".docx", lambda: FILES[".xlsx"], "no DOCX file: it lacks word/"),
    "an old or encrypted DOCX": (
        ".docx",
        lambda: bytes.fromhex("d0cf11e0a1b11ae1") + bytes(600),
        "encrypted, or in an older format",
    ),
    "a truncated DOCX": (".docx", lambda: FILES[".docx"][:-900], "no DOCX file, or a damaged one"),
    "entities without end": (
        ".docx",
        lambda: replaced(FILES[".docx"], WORD, entities()),
        "its XML defines entities",
    ),
    "a part that names a file": (
        ".odt",
        lambda: replaced(FILES[".odt"], "content.xml", external("/etc/passwd")),
        "its XML defines entities",
    ),
    "XML nested too deeply": (
        ".docx",
        lambda: replaced(
            FILES[".docx"], WORD, b"<d><body>" + b"<q>" * 50_000 + b"</q>" * 50_000 + b"</body></d>"
        ),
        "it is nested too deeply",
    ),
    "a part that unpacks to too much": (
        ".docx",
        lambda: replaced(FILES[".docx"], WORD, b"<d>" + b" " * (1 << 24) + b"</d>"),
        "it unpacks to more than the limit",
    ),
    "a sheet that unpacks to too much": (
        ".xlsx",
        lambda: replaced(FILES[".xlsx"], "xl/worksheets/sheet1.xml", b" " * (1 << 25)),
        "it unpacks to more than the limit",
    ),
    "too many parts": (
        ".epub",
        lambda: packed({"META-INF/container.xml": "", **{str(n): "" for n in range(21)}}),
        "more than 20 parts",
    ),
    "an archive that unpacks to too much": (
        ".zip",
        lambda: bomb(1 << 25),
        "it unpacks to more than 16,777,216 bytes",
    ),
    "an archive of too many files": (
        ".zip",
        lambda: packed({f"{n}.txt": "a" for n in range(21)}),
        "more than 20 files in it",
    ),
    "a packed file that unpacks to too much": (
        ".txt.gz",
        lambda: gzip.compress(b" " * (1 << 24), 1),
        "it unpacks to more than 8,388,608 bytes",
    ),
    "a packed file that is cut off": (
        ".txt.gz",
        lambda: gzip.compress(b"A text.")[:-9],
        "no .gz file, or a damaged one",
    ),
    "a file packed in another way": (
        ".txt.bz2",
        lambda: gzip.compress(b"A text."),
        "no .bz2 file, or a damaged one",
    ),
    "a packed file of another kind": (
        ".pdf.gz",
        lambda: gzip.compress(FILES[".docx"]),
        "no PDF file",
    ),
    "no archive": (".zip", lambda: b"nothing", "no archive of this kind, or a damaged one"),
    "no tar archive": (".tar", lambda: b"nothing" * 999, "no archive of this kind, or a damaged"),
    "a text without end": (
        ".txt",
        lambda: b"\xff" + b"a" * 100_000,
        "more than 100,000 characters",
    ),
    "no text": (".txt", lambda: bytes(range(256)) * 9, "binary content, no text"),
    "nothing": (".html", lambda: b"<script>x</script>", "it holds no text"),
    "no mail": (".eml", lambda: b"\n\nNo header", "no e-mail: it has no header"),
    "no RTF": (".rtf", lambda: b"Hello", "no RTF file"),
}

_PARTS = b"--x\ncontent-type: text/plain\n\na\n"


def _many_pages() -> bytes:
    def draw(page: Canvas) -> None:
        for number in range(10_001):
            page.drawString(9, 9, f"Page {number}")
            page.showPage()

    return canvas(draw, pageCompression=0)


# files of at most some megabytes that take a reader to its usual limits, by name and ending
WORST: dict[str, tuple[str, Callable[[], bytes]]] = {
    "a zip bomb": (".zip", lambda: packed({f"{n}.txt": b" " * (1 << 26) for n in range(9)})),
    "a part of 400 MB": (
        ".docx",
        lambda: replaced(FILES[".docx"], WORD, b"<d>" + b"<p/>" * 100_000_000 + b"</d>"),
    ),
    "a cell far away": (
        ".xlsx",
        lambda: replaced(
            FILES[".xlsx"],
            "xl/worksheets/sheet1.xml",
            b'<worksheet><sheetData><row r="1"><c r="A1"><v>1</v></c></row><row r="1048576">'
            b'<c r="XFD1048576"><v>1</v></c></row></sheetData></worksheet>',
        ),
    ),
    "a PDF of 10,001 pages": (".pdf", _many_pages),
    "entities without end": (".odt", lambda: replaced(FILES[".odt"], "content.xml", entities())),
    "HTML nested a million times": (".html", lambda: b"<div>" * 1_000_000 + b"a"),
    "tables nested 20,000 times": (".html", lambda: b"<table><tr><td>" * 20_000 + b"a"),
    "a mail of 100,000 parts": (
        ".eml",
        lambda: b"content-type: multipart/mixed; boundary=x\n\n" + _PARTS * 100_000 + b"--x--\n",
    ),
    "RTF of two million groups": (".rtf", lambda: b"{\\rtf1 " + b"{a" * 2_000_000),
    "a packed gigabyte": (".txt.gz", lambda: gzip.compress(b" " * (1 << 30), 1)),
    "a text without known characters": (".txt", lambda: bytes(range(128, 256)) * 100_000),
    "Markdown of blanks": (".md", lambda: b"# a" + b" " * 15_000_000 + b"b"),
}
