"""Scans are read by tesseract where it is installed, in children that can open nothing."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from ctypes.util import find_library
from pathlib import Path

import pypdfium2 as pdfium
import pytest
from reportlab.lib.utils import ImageReader
from reportlab.pdfgen.canvas import Canvas

from benchmarks.files.fidelity import fidelity
from docsplit.extraction.content import Heading, Limits
from docsplit.extraction.reading import Reader
from tests.extraction.conftest import Outcomes, content_of, outcomes, reason_of

installed = pytest.mark.skipif(find_library("tesseract") is None, reason="needs tesseract")
TEXT = ["The seller delivers the goods by the tenth of May.", "The buyer pays within thirty days."]
ODD = 90

Read = Callable[[bytes], Outcomes]


def written(canvas: Canvas) -> None:
    canvas.setFont("Helvetica", 14)
    for number, line in enumerate(TEXT):
        canvas.drawString(60, 500 - 20 * number, line)


def picture(turn: int = 0) -> ImageReader:
    """The text as pixels, turned clockwise."""
    target = io.BytesIO()
    canvas = Canvas(target, (500, 560))
    written(canvas)
    canvas.save()
    document = pdfium.PdfDocument(target.getvalue())
    return ImageReader(document[0].render(scale=2, rotation=turn, grayscale=True).to_pil())


def scanned(*widths: float, turn: int = 0, text: bool = False, stamp: str = "") -> bytes:
    """A PDF of scans with pages of these widths.

    Args:
        widths: of the pages.
        turn: of the pages, clockwise.
        text: whether to put a page of text before them.
        stamp: a text on the first scan.
    """
    target = io.BytesIO()
    canvas = Canvas(target)
    if text:
        canvas.bookmarkPage("first")
        canvas.addOutlineEntry("Contract", "first")
        canvas.drawString(60, 700, "Contract of sale, whose annex is a scan")
        canvas.showPage()
    for number, width in enumerate(widths):
        canvas.setPageSize((width, 560))
        canvas.drawImage(picture(turn), 0, 0, width, 560)
        canvas.drawString(9, 9, "" if number else stamp)
        canvas.bookmarkPage(f"scan {number}")
        canvas.addOutlineEntry(f"Annex {number}", f"scan {number}")
        canvas.showPage()
    canvas.save()
    return target.getvalue()


def read(content: bytes, ocr: str, limits: Limits | None = None) -> Outcomes:
    with Reader(limits, ocr=ocr) as reader:
        return outcomes(reader, ".pdf", content)


@pytest.fixture(scope="module")
def english() -> Iterator[Read]:
    with Reader(ocr="eng") as reader:
        yield lambda content: outcomes(reader, ".pdf", content)


@installed
def test_a_scan_is_read(english: Read) -> None:
    found = content_of(english(scanned(500)))
    assert fidelity(" ".join(TEXT), found.text) > ODD / 100
    assert found.pages == [0]
    assert found.scans == []


@installed
def test_a_scan_that_lies_on_its_side_is_read() -> None:
    content = scanned(500, turn=90)
    assert fidelity(" ".join(TEXT), content_of(read(content, "auto")).text) > ODD / 100


@installed
def test_a_picture_without_text_is_refused(english: Read) -> None:
    target = io.BytesIO()
    canvas = Canvas(target, (200, 200))
    canvas.ellipse(40, 20, 160, 180, fill=1)
    canvas.save()
    reason = reason_of(english(target.getvalue()))
    assert reason == "a scan without text, and tesseract recognises none"


@installed
def test_an_unknown_language_is_named() -> None:
    reason = reason_of(read(scanned(500), "xyz"))
    assert "tesseract has no data of the languages 'xyz'" in reason


def test_without_recognition_a_scan_is_refused_and_the_rest_of_a_file_read() -> None:
    with Reader(ocr="off") as reader:
        assert "install tesseract" in reason_of(outcomes(reader, ".pdf", scanned(500)))
        found = content_of(outcomes(reader, ".pdf", scanned(500, text=True)))
    assert found.text == "Contract of sale, whose annex is a scan\n"


# in place of tesseract: the text of a page by its width; a page of width 13 has code instead
RECOGNISER = """
import ctypes, os, socket, time
from docsplit.extraction.readers import pdf
def written(number):
    try:
        os.write(number, b"{")
    except OSError:
        pass
class Recogniser:
    def __init__(self, languages):
        self.languages = languages
        if languages == "none":
            raise pdf.AbsentError("nothing is here")
    def text(self, page):
        width = round(page.get_width())
        if width < 200:
            return eval(CODE[width])
        name = {301: "first", 302: "second", 303: "third"}[width]
        return f"Header\\nThe {name} page in {self.languages} is long enough to be an-\\nnotated"
CODE = {
    101: "open('/etc/hostname').read()",
    102: "str(socket.socket())",
    103: "str(os.fork())",
    104: "ctypes.string_at(0)",
    105: "'x'",
    106: "exec('while True: pass')",
    107: "[written(n) for n in range(3, 9)] and os._exit(0)",
}
pdf.Recogniser = Recogniser
"""


@pytest.fixture(scope="module")
def pretended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Processes that start now have another recogniser."""
    folder: Path = tmp_path_factory.mktemp("recogniser")
    (folder / "sitecustomize.py").write_text(RECOGNISER)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        yield


@pytest.fixture(scope="module")
def recognise(pretended: None) -> Iterator[Read]:
    """Reads a PDF with the other recogniser."""
    with Reader(Limits(memory=1 << 28, scans=3), ocr="eng") as reader:
        yield lambda content: outcomes(reader, ".pdf", content)


def test_recognised_pages_join_the_others(recognise: Read) -> None:
    found = content_of(recognise(scanned(301, 302, 303, text=True)))
    names = ("first", "second", "third")
    pages = [f"The {name} page in eng is long enough to be annotated" for name in names]
    # the header of few pages stays once
    pages[0] = f"Header\n{pages[0]}"
    assert found.text == "\n".join(["Contract of sale, whose annex is a scan", *pages])
    starts = [found.text.index(page) for page in pages]
    assert found.pages == [0, *starts]
    assert found.headings == [
        Heading(0, 1, "Contract"),
        *(Heading(start, 1, f"Annex {number}") for number, start in enumerate(starts)),
    ]


def test_text_of_the_file_stays_where_less_is_recognised(recognise: Read) -> None:
    assert content_of(recognise(scanned(105, stamp="stamped"))).text == "stamped"


@pytest.mark.parametrize(
    ("width", "reason"),
    [
        (101, "(PermissionError)"),
        (102, "(PermissionError)"),
        (103, "(PermissionError)"),
        (104, "its reader crashed"),
        (107, "its reader gave no valid answer"),
    ],
)
def test_a_flawed_recogniser_is_confined(recognise: Read, width: int, reason: str) -> None:
    assert reason in reason_of(recognise(scanned(width)))
    # the next page is read
    assert content_of(recognise(scanned(301))).text.startswith("Header")


def test_scans_are_bounded(recognise: Read) -> None:
    reason = "4 scanned pages; the limit is 3: split it"
    assert reason_of(recognise(scanned(*range(301, 305)))) == reason
    # what the file has as text is read
    assert content_of(recognise(scanned(*range(301, 305), stamp="one"))).text.startswith("one")
    slow = read(scanned(301, 302), "eng", Limits(scan_seconds=0))
    assert reason_of(slow) == "recognising its text takes more than 0 s: split it"


def test_another_thread_interrupts_the_recognition(pretended: None) -> None:
    with Reader(ocr="eng") as reader, ThreadPoolExecutor(1) as pool:
        # the processes run from now on
        assert content_of(outcomes(reader, ".pdf", scanned(301))).text.startswith("Header")
        reading = pool.submit(outcomes, reader, ".pdf", scanned(106, 301))
        with pytest.raises(TimeoutError):
            reading.result(0.5)
        reader.interrupt()
        # not even the next page is read
        assert reason_of(reading.result(20)) == "the reading was interrupted"
        reader.close()
        assert content_of(outcomes(reader, ".pdf", scanned(301))).text.startswith("Header")


def test_a_recogniser_that_is_absent_says_why(pretended: None) -> None:
    assert reason_of(read(scanned(301), "none")).endswith("(nothing is here)")
