"""The words of a text in any script, as searches compare them.

The index over words, queries, stored words, passages, duplicates, names and topics take them from
here. docs/explanation/search.md, "Words", says what a word is.
"""

from __future__ import annotations

import re
import unicodedata
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain, islice, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from Stemmer import Stemmer

# the index of LanceDB over words in the form of ``lined``: it splits them at blanks
INDEX: dict[str, Any] = {
    "base_tokenizer": "whitespace",
    "lower_case": False,
    "stem": False,
    "remove_stop_words": False,
    "ascii_folding": False,
    "max_token_length": None,
}
# a text of a million tokens may have more, and its later words add little to what it is about
MOST_WORDS = 500_000
# vowel signs and accents, which ``\w`` lacks
MARKS = "".join(
    char for char in map(chr, range(0x300, 0x1F000)) if unicodedata.category(char)[0] == "M"
)
# scripts without blanks: Thai, Lao, Burmese, Khmer and katakana write words with some letters each
LETTERS = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u30a0-\u30ff"
# Han, hiragana and Hangul with fewer; Korean particles follow a noun without a blank
SYLLABLES = "\u3005-\u3007\u3040-\u309f\u3400-\u9fff\uac00-\ud7a3\uf900-\ufaff\U00020000-\U0003ffff"
UNSPACED = LETTERS + SYLLABLES
# characters of a word in them
_OF_LETTERS, _OF_SYLLABLES = 3, 2
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
_RAISED = re.compile("[⁰¹²³⁴-⁹]+")
_LETTER = r"[^\W\d_]"
_ABBREVIATION = rf"{_LETTER}(?:\.{_LETTER}){{1,9}}+\.?(?!\.?\w)"
_SIGNED = rf"{_LETTER}(?:\+\+?|#)(?![\w+#])|{_LETTER}{{1,3}}&{_LETTER}{{1,3}}(?![\w&])|§"
_RUN = re.compile(rf"{_ABBREVIATION}|{_SIGNED}|[\w{MARKS}{SILENT}\u2100-\u214f\u3300-\u33ff]+")
_PART = re.compile(
    rf"([{LETTERS}]+)|([{SYLLABLES}]+)|{_SIGNED}|(?:[^\W_{UNSPACED}]|[{MARKS}]){{1,{_LONGEST}}}"
)
_DIVISION = re.compile(r"-\r?\n[ \t]*(?=\w)")
_FIRST, _LAST = re.compile(r"\w{1,64}"), re.compile(r"\w{1,64}$")
# characters that one step splits, so that no step grows with the text
_STEP = 1 << 16
_SHARED = re.compile(rf"[{LETTERS}]{{2}}$|[{SYLLABLES}]$")
_AROUND = ".,;:!?()[]\"'"
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
    return _of(_whole(text), _ASKED)


def forms(text: str) -> Iterator[str]:
    """The same words with their endings, one for each of ``words``."""
    return _of(_whole(text), _FORMS)


def every(text: str) -> Iterator[str]:
    """The words that an index holds: also those of shorter queries, and halves of divided words."""
    halves = (
        half[0]
        for place in _divisions(text)
        for half in (
            _LAST.search(text, max(0, place.start() - 64), place.start()),
            _FIRST.match(text, place.end()),
        )
        if half
    )
    return islice(chain(_of(_whole(text), _HELD), words(" ".join(halves))), MOST_WORDS)


def lined(text: str, ends: Sequence[int]) -> str:
    """A line with the words of each window, each between two blanks.

    Args:
        text: of a document.
        ends: one past the last character of each window.
    """
    left = MOST_WORDS
    lines = []
    for start, end in pairwise((0, *ends)):
        held = list(islice(every(text[start:end]), left))
        left -= len(held)
        lines.append(f" {' '.join(held)} \n")
    return "".join(lines)


def placed(text: str, wanted: Collection[str] | None = None) -> Iterator[tuple[str, int, int]]:
    """Words, each with its first character and one past its last.

    Args:
        text: to look into.
        wanted: the words to find; None stands for all that a query would ask for.
    """
    wanted = None if wanted is None else frozenset(wanted)
    for token in re.finditer(r"\S+", text):
        if wanted is not None and wanted.isdisjoint(_HELD[token[0]]):
            continue
        for run in _RUN.finditer(token[0]):
            first = token.start() + run.start()
            for word, start, end in _parts(run[0], shorter=wanted is not None):
                word = stem(word)
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


def hashed(text: str) -> NDArray[np.uint32]:
    """The hash of each word with its ending, in the order of the text."""
    return hashes(forms(text))


def hashes(found: Iterable[str]) -> NDArray[np.uint32]:
    """The hash of each word."""
    return np.fromiter((zlib.crc32(word.encode("utf-8", "replace")) for word in found), np.uint32)


def pairs_of(words: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """The hash of each pair of adjacent words, from those of the words."""
    return words[:-1] * np.uint32(0x9E3779B1) ^ words[1:]


class _Known(dict[str, tuple[str, ...]]):
    """The words of what stands between two blanks."""

    def __init__(self, end: Callable[[str], str], *, shorter: bool = False) -> None:
        super().__init__()
        self._end = end
        self._shorter = shorter

    def __missing__(self, token: str) -> tuple[str, ...]:
        plain = token.strip(_AROUND)
        if plain.isascii() and plain.isalnum() and len(plain) <= _KEPT_LENGTH:
            # most tokens, in a third of the time
            found: tuple[str, ...] = (self._end(plain.lower()),)
        else:
            runs = (_parts(run, shorter=self._shorter) for run in _RUN.findall(token))
            found = tuple(self._end(word) for word, _, _ in chain.from_iterable(runs))
        if len(token) <= _KEPT_LENGTH:
            if len(self) >= _KEPT:
                self.clear()
            self[token] = found
        return found


def stem(word: str) -> str:
    """A folded word without its English ending."""
    found = _STEM(word)
    return word if found in _COMMON else found


_ASKED, _HELD, _FORMS = _Known(stem), _Known(stem, shorter=True), _Known(str)


def _of(text: str, known: _Known) -> Iterator[str]:
    tokens = chain.from_iterable(map(str.split, _steps(text)))
    return islice(chain.from_iterable(map(known.__getitem__, tokens)), MOST_WORDS)


def _steps(text: str) -> Iterator[str]:
    at = 0
    while at < len(text):
        end = at + _STEP
        blank = max(text.rfind(" ", at + 1, end), text.rfind("\n", at + 1, end))
        if end >= len(text) or blank > 0:
            end = blank if end < len(text) else end
            yield text[at:end]
            at = end
        else:
            yield text[at:end]
            # so that each run of characters is whole in one of both steps
            shared = _SHARED.search(text, end - 2, end)
            at = end - len(shared[0]) if shared else end


def _divisions(text: str) -> Iterator[re.Match[str]]:
    """The places where a hyphen and a line's end divide a word."""
    return (
        place
        for place in _DIVISION.finditer(text)
        if text[max(0, place.start() - 1)].islower() and text[place.end()].islower()
    )


def _whole(text: str) -> str:
    """The text with divided words joined."""
    edges = [0, *chain.from_iterable(place.span() for place in _divisions(text)), len(text)]
    return "".join(text[start:end] for start, end in zip(edges[::2], edges[1::2], strict=True))


def _parts(run: str, *, shorter: bool) -> Iterator[tuple[str, int, int]]:
    """The words of a run, each with its place in it; that of an abbreviation is the whole run."""
    plain = folded(run).replace(".", "")
    same = len(plain) == len(run)
    for part in _PART.finditer(plain):
        word, first = part[0], part.start()
        most = _OF_LETTERS if part[1] else _OF_SYLLABLES if part[2] else 0
        if not most:
            yield word, *(part.span() if same else (0, len(run)))
            continue
        longest = min(most, len(word))
        # words of one letter are rare
        for size in range(min(longest, most - 1) if shorter else longest, longest + 1):
            for at in range(len(word) - size + 1):
                place = (first + at, first + at + size) if same else (0, len(run))
                yield word[at : at + size], *place
