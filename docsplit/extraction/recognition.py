"""Recognises the text on a page of a PDF with tesseract (Apache-2.0), within a confined child.

The process that forks the children loads tesseract's library and the data of its languages. So a
child needs no file, and recognises under the same bounds under which it reads.
"""

from __future__ import annotations

import ctypes
import os
from ctypes import POINTER, byref, c_char_p, c_float, c_int, c_void_p
from ctypes.util import find_library
from typing import Any

import pypdfium2 as pdfium

# dots an inch, as tesseract's data was trained, and of a page at most
_DOTS, _MOST_PIXELS = 300, 25_000_000
_INCH = 72
# mean confidence of a page, in percent: lower, it may be turned; and what is no text
_DOUBTFUL, _NO_TEXT = 70, 30
# languages that "auto" takes: each takes about as much time as the first
_MOST_LANGUAGES = 3
_USUAL, _ORIENTATION = "eng", "osd"
_NO_LANGUAGES = {_ORIENTATION, "equ"}
# finds columns and paragraphs, without the data for the orientation
_LAYOUT = 3


class AbsentError(Exception):
    """No text can be recognised here; the message says why."""


class Recogniser:
    """Tesseract with the data of some languages in memory.

    Args:
        languages: as tesseract names them, joined by "+", or "auto".

    Raises:
        AbsentError: tesseract or a language is not installed.
    """

    def __init__(self, languages: str) -> None:
        # threads would need a system call that children do not have
        os.environ["OMP_THREAD_LIMIT"] = "1"
        self._library = _library()
        named = self._installed() if languages == "auto" else languages
        self._text = self._opened(named)
        if self._text is None:
            raise AbsentError(f"tesseract has no data of the languages {named!r}")
        self._library.TessBaseAPISetPageSegMode(self._text, _LAYOUT)
        self._sides = self._opened(_ORIENTATION)

    def text(self, page: pdfium.PdfPage) -> str:
        """The text that a page shows as a picture; "" if it shows none.

        Tesseract reads upright pages. Another one is turned if its orientation is known.
        """
        found, confidence = self._read(page, 0)
        if confidence < _DOUBTFUL and (turn := self._turn(page)):
            turned = self._read(page, turn)
            found, confidence = max((found, confidence), turned, key=lambda read: read[1])
        return found if confidence >= _NO_TEXT else ""

    def _read(self, page: pdfium.PdfPage, turn: int) -> tuple[str, int]:
        """Text and mean confidence of a page, turned clockwise by some degrees."""
        self._show(self._text, page, turn)
        found = self._library.TessBaseAPIGetUTF8Text(self._text)
        text = ctypes.string_at(found).decode("utf-8", "replace") if found else ""
        return text, self._library.TessBaseAPIMeanTextConf(self._text) if text.strip() else 0

    def _turn(self, page: pdfium.PdfPage) -> int:
        """The degrees by which the page must be turned clockwise."""
        if self._sides is None:
            return 0
        self._show(self._sides, page, 0)
        degrees, script = c_int(), c_char_p()
        sure, sure_of_script = c_float(), c_float()
        known = self._library.TessBaseAPIDetectOrientationScript(
            self._sides, byref(degrees), byref(sure), byref(script), byref(sure_of_script)
        )
        return (360 - degrees.value) % 360 if known else 0

    def _show(self, handle: Any, page: pdfium.PdfPage, turn: int) -> None:
        width, height = page.get_size()
        scale = min(_DOTS / _INCH, (_MOST_PIXELS / max(1, width * height)) ** 0.5)
        picture = page.render(scale=scale, rotation=turn, grayscale=True)
        pixels = bytes(picture.buffer)
        size = picture.width, picture.height, 1, picture.stride
        # tesseract copies the pixels
        self._library.TessBaseAPISetImage(handle, pixels, *size)
        self._library.TessBaseAPISetSourceResolution(handle, round(scale * _INCH))
        picture.close()

    def _opened(self, languages: str) -> Any:
        handle = self._library.TessBaseAPICreate()
        failed = self._library.TessBaseAPIInit3(handle, None, languages.encode())
        return None if failed else handle

    def _installed(self) -> str:
        """All installed languages if they are few, else the usual one."""
        handle = self._opened(_USUAL) or self._opened(_ORIENTATION)
        if handle is None:
            raise AbsentError("tesseract has no data of any language")
        names = self._library.TessBaseAPIGetAvailableLanguagesAsVector(handle)
        found: list[str] = []
        while names[len(found)]:
            found.append(names[len(found)].decode())
        self._library.TessBaseAPIDelete(handle)
        found = sorted(set(found) - _NO_LANGUAGES, key=lambda name: (name != _USUAL, name))
        # scripts such as "script/Latin" repeat languages
        found = [name for name in found if "/" not in name]
        if not found:
            raise AbsentError("tesseract has no data of any language")
        return "+".join(found if len(found) <= _MOST_LANGUAGES else found[:1])


def _library() -> Any:
    name = find_library("tesseract")
    try:
        library = ctypes.CDLL(name or "libtesseract.so.5")
    except OSError:
        raise AbsentError("tesseract is not installed") from None
    library.TessBaseAPICreate.restype = c_void_p
    library.TessBaseAPIDelete.argtypes = [c_void_p]
    library.TessBaseAPIInit3.argtypes = [c_void_p, c_char_p, c_char_p]
    library.TessBaseAPIGetAvailableLanguagesAsVector.argtypes = [c_void_p]
    library.TessBaseAPIGetAvailableLanguagesAsVector.restype = POINTER(c_char_p)
    library.TessBaseAPISetPageSegMode.argtypes = [c_void_p, c_int]
    library.TessBaseAPISetImage.argtypes = [c_void_p, c_char_p, c_int, c_int, c_int, c_int]
    library.TessBaseAPISetSourceResolution.argtypes = [c_void_p, c_int]
    library.TessBaseAPIGetUTF8Text.argtypes = [c_void_p]
    library.TessBaseAPIGetUTF8Text.restype = c_void_p
    library.TessBaseAPIMeanTextConf.argtypes = [c_void_p]
    library.TessBaseAPIDetectOrientationScript.argtypes = [
        c_void_p,
        POINTER(c_int),
        POINTER(c_float),
        POINTER(c_char_p),
        POINTER(c_float),
    ]
    return library
