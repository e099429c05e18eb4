"""The words of a text in any script, as searches compare them.

The index over words, queries, stored words, passages, duplicates, names and topics take them from
here. docs/explanation/search.md, "Words", says what a word is.
"""

from __future__ import annotations

import re
import unicodedata
import zlib
from collections.abc import Iterable, Iterator, Sequence, Set
from itertools import chain, islice, pairwise
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from Stemmer import Stemmer

# the index of LanceDB over words in the form of ``lined``: it splits them at blanks, and stems them
INDEX: dict[str, Any] = {
    "base_tokenizer": "whitespace",
    "remove_stop_words": False,
    "max_token_length": None,
}
# a text of a million tokens may have more, and its later words add little to what it is about
MOST_WORDS = 500_000
# vowel signs and accents, which ``\w`` lacks
_MARKS = [char for char in map(chr, range(0x300, 0x1F000)) if unicodedata.category(char)[0] == "M"]
MARKS = "".join(char for char in _MARKS if char < "\U00010000")
# A pattern compares with each of the others, for 2 µs, so a range stands before them.
_WIDE = "\U00010000-\U0001efff"
WIDE_MARK = rf"(?=[{_WIDE}])[{''.join(_MARKS[len(MARKS) :])}]"
# scripts without blanks: Thai, Lao, Burmese, Khmer and katakana write words with some letters each
LETTERS = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u30a0-\u30ff"
# Han, hiragana and Hangul with fewer; Korean particles follow a noun without a blank
SYLLABLES = "\u3005-\u3007\u3040-\u309f\u3400-\u9fff\uac00-\ud7a3\uf900-\ufaff\U00020000-\U0003ffff"
UNSPACED = LETTERS + SYLLABLES
# soft hyphens, joiners, blanks without width, and such
SILENT = "\u00ad\u034f\u0640\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufe00-\ufe0f\ufeff"
# accents, and the vowels of Arabic and Hebrew; the breve of the letter й stays
_ACCENTS = (
    "\u0300-\u0305\u0307-\u036f\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7"
    "\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06ed"
)
_DROPPED = re.compile(rf"[{SILENT}{_ACCENTS}]+|(?<!и)\u0306")
# letters that Unicode does not write as another with an accent
_LATIN = str.maketrans("øłđðħŧı", "olddhti") | str.maketrans({"æ": "ae", "œ": "oe", "þ": "th"})
# Characters. A longer word is cut, and so is what is composed at once: that takes time with the
# square of a run of marks.
_LONGEST = 128
# characters of a word: of most scripts, of letters, of syllables
_SIZES = _LONGEST, 3, 2
_RAISED = re.compile("[⁰¹²³⁴-⁹]+")
_LETTER = r"[^\W\d_]"
_ABBREVIATION = rf"{_LETTER}(?:\.{_LETTER}){{1,9}}+\.?(?!\.?\w)"
_SIGNED = rf"{_LETTER}(?:\+\+?|#)(?![\w+#])|{_LETTER}{{1,3}}&{_LETTER}{{1,3}}(?![\w&])|§"
# only sets: a group would keep a state for each character of an endless word
_RUN = re.compile(
    rf"{_ABBREVIATION}|{_SIGNED}|[\w{MARKS}{SILENT}\u2100-\u214f\u3300-\u33ff{_WIDE}]+"
)
_PART = re.compile(
    rf"([{LETTERS}]+)|([{SYLLABLES}]+)|{_SIGNED}"
    rf"|(?:[^\W_{UNSPACED}]|[{MARKS}]|{WIDE_MARK}){{1,{_LONGEST}}}"
)
# a hyphen and a line's end that divide a word
_DIVISION = re.compile(r"-(?<=[^\W\d_A-Z]-)\r?\n[ \t]*(?=[^\W\d_A-Z])")
_TOKEN = re.compile(r"\S+")
# words between blanks that are remembered, and their characters
_KEPT, _KEPT_LENGTH = 1 << 14, 48
_STEM = Stemmer("english", 0).stemWord
# a word with one of these as its stem is another word: "theses", "willing"
_COMMON = frozenset(
    "a an and are as at be but by for if in into is it no not of on or such that the their then "  # noqa: SIM905 a list is longer
    "there these they this to was will with".split()
)


def words(text: str) -> Iterator[str]:
    """The first ``MOST_WORDS`` words, as a query asks for them.

    A script without blanks has no words: its runs of two or three characters count instead.
    """
    return _of(text, _ASKED)


def every(text: str) -> Iterator[str]:
    """The words that an index holds: also those of shorter queries, and halves of divided words."""
    halves = (
        f"{text[max(0, at.start() - 64) : at.start()].split()[-1]} "
        f"{text[at.end() : at.end() + 64].split()[0]}"
        for at in _DIVISION.finditer(text)
    )
    return islice(chain(_of(text, _HELD), words(" ".join(halves))), MOST_WORDS)


def lined(text: str, ends: Sequence[int]) -> str:
    """A line with the words of each window, each between two blanks.

    Args:
        text: of a document.
        ends: one past the last character of each window.
    """
    spans = pairwise((0, *ends))
    return "".join(f" {' '.join(every(text[start:end]))} \n" for start, end in spans)


def placed(text: str, wanted: Set[str] | None = None) -> Iterator[tuple[str, int, int]]:
    """Words, each with its first character and one past its last.

    Args:
        text: to look into.
        wanted: the words to find; without it, all that a query would ask for.
    """
    for token in _TOKEN.finditer(text):
        if wanted is not None and wanted.isdisjoint(_HELD[token[0]]):
            continue
        for run in _RUN.finditer(token[0]):
            first = token.start() + run.start()
            for word, start, end in _parts(run[0], shorter=wanted is not None):
                word = _apart(word)
                if wanted is None or word in wanted:
                    yield word, first + start, first + end


def folded(run: str) -> str:
    """A word without case, accents and characters that say nothing, and in one form of Unicode."""
    if run.isascii():
        return run.lower()
    if len(run) > _LONGEST:
        return "".join(folded(run[at : at + _LONGEST]) for at in range(0, len(run), _LONGEST))
    plain = unicodedata.normalize("NFKD", _RAISED.sub(r" \g<0> ", run)).casefold()
    # some letters in lower case have an accent of their own, as that of İ
    plain = _DROPPED.sub("", unicodedata.normalize("NFKD", plain))
    return unicodedata.normalize("NFC", plain.translate(_LATIN))


def hashes(found: Iterable[str]) -> NDArray[np.uint32]:
    """The hash of each word, in their order."""
    return np.fromiter((zlib.crc32(word.encode("utf-8", "replace")) for word in found), np.uint32)


def pairs_of(words: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """The hash of each pair of adjacent words, from those of the words."""
    return words[:-1] * np.uint32(0x9E3779B1) ^ words[1:]


class _Known(dict[str, Iterable[str]]):
    """The words of what stands between two blanks."""

    def __init__(self, *, shorter: bool = False) -> None:
        super().__init__()
        self._shorter = shorter

    def __missing__(self, token: str) -> Iterable[str]:
        if len(token) > _KEPT_LENGTH:
            return self._found(token)
        if len(self) >= _KEPT:
            self.clear()
        # most tokens are one word, which takes a third of the time
        plain = token.strip(".,;:!?()[]\"'").lower()
        one = plain.isascii() and plain.isalnum()
        return self.setdefault(token, (_apart(plain),) if one else tuple(self._found(token)))

    def _found(self, token: str) -> Iterator[str]:
        for run in _RUN.finditer(token):
            for word, _, _ in _parts(run[0], shorter=self._shorter):
                yield _apart(word)


def _apart(word: str) -> str:
    """The word, with a sign that keeps its ending if its stem is a common word."""
    return f"{word}_" if word not in _COMMON and _STEM(word) in _COMMON else word


_ASKED, _HELD = _Known(), _Known(shorter=True)


def _of(text: str, known: _Known) -> Iterator[str]:
    tokens = map(itemgetter(0), _TOKEN.finditer(_DIVISION.sub("", text)))
    return islice(chain.from_iterable(map(known.__getitem__, tokens)), MOST_WORDS)


def _parts(run: str, *, shorter: bool) -> Iterator[tuple[str, int, int]]:
    """The words of a run, each with its place in it; that of an abbreviation is the whole run."""
    plain = folded(run).replace(".", "")
    same = len(plain) == len(run)
    for part in _PART.finditer(plain):
        word, most = part[0], _SIZES[part.lastindex or 0]
        longest = min(most, len(word))
        # words of one letter are rare
        least = min(longest, most - 1) if shorter and part.lastindex else longest
        for size in range(least, longest + 1):
            for at in range(part.start(), part.end() - size + 1):
                yield plain[at : at + size], *((at, at + size) if same else (0, len(run)))
