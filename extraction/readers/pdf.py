"""PDF: the text of each page in the order of the file, without what repeats on each page."""

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import BinaryIO

import pypdfium2 as pdfium

from extraction.building import clean, day, line
from extraction.content import Content, Heading, Limits, UnreadableError
from extraction.readers.pdf_lines import joined, without_repeated

_SPELLED = str.maketrans({"ﬀ": "ff", "ﬁ": "fi", "ﬂ": "fl", "ﬃ": "ffi", "ﬄ": "ffl", "\xad": ""})
# what fonts without a map to Unicode give: controls, private use, replacement
_UNMAPPED = re.compile("[\x00-\x08\x0e-\x1f\ue000-\uf8ff\ufffd]")
_MOST_UNMAPPED = 0.3
# entries of an outline
_MOST_HEADINGS = 10_000
_CREATED = re.compile(r"(?:D:)?(\d{4})(\d\d)?(\d\d)?")
# what programs write where the user gave no title
_NO_TITLE = re.compile(
    r"(?i)(?:un(?:titled|specified)|anonymous|microsoft \w+ - .*|.*\.(?:docx?|tex|dvi|pdf))$"
)
_SCAN = "a scan without text: recognise its text first, for example with ocrmypdf"
_FONTS = "its fonts do not say which characters they show: recognise its text, as of a scan"


def read(stream: BinaryIO, limits: Limits) -> Content:
    """The text with the first character of each page, and the headings of the outline."""
    document = _open(stream)
    count = len(document)
    if count > limits.pages:
        raise UnreadableError(f"{count:,} pages; the limit is {limits.pages:,}: split it")
    raw = list(_pages(document, limits))
    pages = [clean(page.translate(_SPELLED)).split("\n") for page in joined(raw)]
    texts = ["\n".join(lines).strip("\n").rstrip() for lines in without_repeated(pages)]
    starts, size = [], 0
    for text in texts:
        starts.append(size)
        size += len(text) + 1
    whole = "\n".join(texts)
    if not whole.strip():
        raise UnreadableError(_SCAN)
    stated = document.get_metadata_dict()
    title = line(stated.get("Title"))
    headings = sorted(_headings(document, whole, starts))
    return Content(
        whole,
        None if title is None or _NO_TITLE.match(title) else title,
        _named(stated.get("Author")),
        _created(stated.get("CreationDate", "")),
        [min(start, len(whole)) for start in starts],
        headings,
    )


def _open(stream: BinaryIO) -> pdfium.PdfDocument:
    content = stream.read()
    if b"%PDF-" not in content[:1024]:
        raise UnreadableError("no PDF file")
    try:
        return pdfium.PdfDocument(content)
    except pdfium.PdfiumError as error:
        if "assword" in str(error):
            raise UnreadableError("encrypted; save it without a password") from error
        raise UnreadableError("a damaged PDF file") from error


def _pages(document: pdfium.PdfDocument, limits: Limits) -> Iterator[str]:
    size = unmapped = 0
    for number in range(len(document)):
        try:
            page = document[number]
        except pdfium.PdfiumError:
            # the others may be sound, and the numbers of the pages stay right
            yield ""
            continue
        words = page.get_textpage()
        text: str = words.get_text_range()
        words.close()
        page.close()
        size += len(text)
        unmapped += len(_UNMAPPED.findall(text))
        if size > limits.characters:
            raise UnreadableError(f"more than {limits.characters:,} characters of text; split it")
        yield text
    if unmapped > _MOST_UNMAPPED * size:
        raise UnreadableError(_FONTS)


def _headings(document: pdfium.PdfDocument, text: str, starts: Sequence[int]) -> Iterator[Heading]:
    """The entries of the outline, each where its page's text has it or where the page begins."""
    former = 0
    for entry in islice(document.get_toc(), _MOST_HEADINGS):
        title, target = line(entry.get_title()), entry.get_dest()
        page = target.get_index() if target is not None else None
        if title is None or page is None or not 0 <= page < len(starts):
            continue
        # a page may have the words twice, and an outline has the order of the text
        begin = max(starts[page], former)
        end = starts[page + 1] if page + 1 < len(starts) else len(text)
        words = r"\s+".join(map(re.escape, title.split()))
        # a line of its own rather than the same words in a sentence
        found = re.compile(rf"^[\d. ]*{words} *$", re.M).search(text, begin, end)
        found = found or re.compile(words).search(text, begin, end)
        start = found.start() if found else min(starts[page], len(text))
        former = found.end() if found else former
        yield Heading(start, entry.level + 1, title)


def _named(author: str | None) -> str | None:
    found = line(author)
    return None if found is None or _NO_TITLE.match(found) else found


def _created(date: str) -> str | None:
    found = _CREATED.match(date)
    return day("-".join([found[1], found[2] or "01", found[3] or "01"])) if found else None
