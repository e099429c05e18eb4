"""Bytes to text, in any common encoding."""

import codecs
import re
from collections import Counter
from contextlib import suppress
from itertools import product

from charset_normalizer import from_bytes

from docsplit.extraction.content import Limits, UnreadableError

# letters beyond ASCII of languages, and the encodings of their texts, the commonest first
_ALPHABETS = {
    ("cp1252",): "àâæçéèêëîïôœùûüÿ äöüßé áéíóúüñºª áâãàçéêíóôõúüºª àèéìíîòóùúºª àçèéíïòóúüñ "
    "áéèëêïíóöúü åäöéü æøåéòôóèêäöü áðéíóúýþæö àáâäåæçèéêëíïîñóôöøúüß",
    ("cp1250", "iso8859-2"): "áčďéěíňóřšťúůýž áäčďéíĺľňóôŕšťúýž ąćęłńóśźż áéíóöőúüű čćđšž ăâîşţ",
    ("cp1254",): "çğıöşüâîû",
    ("cp1257",): "ąčęėįšųūž āčēģīķļņšūž äõöüšž",
}
# marks that texts of all these languages may have
_SIGNS = frozenset("“”„‘’«»‹›–—…•·°§€£©®™¿¡×÷±µ\xa0\xad")
# of the other characters beyond ASCII, how many must be letters of one alphabet
_LEAST = 0.95


def likely(content: bytes) -> str | None:
    """The encoding in which one language has nearly all letters beyond ASCII; None for no such one.

    Args:
        content: of the text, which is neither ASCII nor UTF-8.
    """
    counted = Counter(content.translate(None, bytes(range(128))))
    shares = [
        (_share(counted, letters, encoding), encoding)
        for encodings, alphabets in _ALPHABETS.items()
        for letters, encoding in product(alphabets.split(), encodings)
    ]
    # of equal ones the first
    best, found = max(shares, key=lambda one: one[0])
    return found if best >= _LEAST else None


def _share(counted: Counter[int], letters: str, encoding: str) -> float:
    """The share of the letters of one alphabet; capital ones count up to the number of small ones.

    In other encodings, such as those of Macs, capital letters take the place of small ones.
    """
    small = capital = others = 0
    for code, count in counted.items():
        character = bytes((code,)).decode(encoding, "replace")
        if character in letters:
            small += count
        elif character.lower() in letters:
            capital += count
        elif character not in _SIGNS:
            others += count
    number = small + capital + others
    return (small + min(small, capital)) / number if number else 1.0


_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    # the mark of UTF-32 begins with that of UTF-16
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_WESTERN = "cp1252"
# encodings whose bytes are ASCII, so that they pass as UTF-8
_SEVEN_BITS = ("iso2022", "hz", "utf-7")
# as browsers read them (https://encoding.spec.whatwg.org): the wider encoding that programs mean
_WIDER = {
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "iso8859-11": "cp874",
    "tis-620": "cp874",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "gb2312": "gb18030",
    "gbk": "gb18030",
}
# what shifts to Japanese, and the encoding that knows all these shifts
_SHIFTS = re.compile(rb"\x1b(?:\$[@B]|\$\(D|\(I)")
_SHIFTED = "iso2022_jp_ext"
_EQUAL = 0.1
_SAMPLE = 4096
_CONTROLS = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
_MOST_CONTROLS = 0.02
# wrong places of a text in UTF-8 for each letter beyond ASCII
_MOST_WRONG = 0.25
_BINARY = "binary content, no text"


def text_of(content: bytes, limits: Limits, declared: str | None = None) -> str:
    """The text of some bytes: by its byte order mark, as UTF-8, or in the likeliest encoding.

    Args:
        content: of a file.
        limits: of the text.
        declared: an encoding to try after UTF-8, or before it if its bytes are ASCII.

    Raises:
        UnreadableError: no text, or more than the limit.
    """
    found = _decoded(content, declared)
    if len(_CONTROLS.findall(found)) > _MOST_CONTROLS * len(found):
        raise UnreadableError(_BINARY)
    if len(found) > limits.characters:
        raise UnreadableError(f"more than {limits.characters:,} characters of text; split it")
    return found


def _decoded(content: bytes, declared: str | None) -> str:
    for mark, encoding in _MARKS:
        if content.startswith(mark):
            return content.decode(encoding, "replace")
    sample = content[:_SAMPLE]
    if sample.count(0) > _MOST_CONTROLS * len(sample):
        return _wide(content)
    if content.isascii() and (shifted := _shifted(content, declared)) is not None:
        return shifted
    name = _name(declared)
    # ISO-8859-1 has letters for the few bytes that cp1252 lacks
    for encoding in ("utf-8", _WIDER.get(name, name), name):
        with suppress(UnicodeError, LookupError):
            return content.decode(encoding)
    if b"\0" in sample:
        raise UnreadableError(_BINARY)
    if (mended := _mended(content)) is not None:
        return mended
    if (guess := likely(content)) is not None:
        return content.decode(guess, "replace")
    found = from_bytes(content)
    best = found.best()
    if best is None:
        raise UnreadableError("no text in a known encoding; save it as UTF-8")
    # among encodings that fit equally, the library prefers rarer ones of East Europe and of DOS
    for one in found:
        if _WESTERN in one.could_be_from_charset and (
            one.chaos <= best.chaos and one.coherence >= best.coherence - _EQUAL
        ):
            return content.decode(_WESTERN)
    return str(best)


def _mended(content: bytes) -> str | None:
    """UTF-8 with a few wrong bytes, as of a text that was cut within a character; None for others.

    Few letters of another encoding look like those of UTF-8.
    """
    text = content.decode("utf-8", "ignore")
    right = len(text) - len(text.encode("ascii", "ignore"))
    if not right:
        return None
    mended = content.decode("utf-8", "replace")
    return mended if _MOST_WRONG * right >= mended.count("\ufffd") else None


def _shifted(content: bytes, declared: str | None) -> str | None:
    """The text of ASCII bytes in an encoding that gives them other meanings."""
    name = _name(declared)
    with suppress(UnicodeError, LookupError):
        if name.startswith(_SEVEN_BITS):
            return content.decode(_SHIFTED if name == "iso2022_jp" else name, "replace")
        if _SHIFTS.search(content):
            return content.decode(_SHIFTED)
    return None


def _name(declared: str | None) -> str:
    """Python's name of an encoding; another one as it stands, and "" for none."""
    try:
        return codecs.lookup(declared).name if declared else ""
    except LookupError:
        return declared or ""


def _wide(content: bytes) -> str:
    """UTF-16 without a mark: most texts have a zero in every second byte."""
    sample = content[:_SAMPLE]
    low, high = sample[0::2].count(0), sample[1::2].count(0)
    if max(low, high) * 4 >= len(sample) and min(low, high) * 8 <= max(low, high):
        with suppress(UnicodeDecodeError):
            return content.decode("utf-16-be" if low > high else "utf-16-le")
    raise UnreadableError(_BINARY)
