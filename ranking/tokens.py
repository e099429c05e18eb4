"""The words of a text, in any script."""

import re
import zlib
from collections.abc import Iterable, Iterator
from itertools import islice

import numpy as np
from numpy.typing import NDArray

# a text of a million tokens may have more, and its later words add little to what it is about
MOST_WORDS = 500_000
# scripts without blanks: Thai, Lao, Burmese and Khmer have letters, kana and Han more than these
LETTERS = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
UNSPACED = LETTERS + "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
# vowel signs of Arabic, Hebrew and the Indian scripts, which ``\w`` lacks
MARKS = "\u0300-\u036f\u0591-\u05bd\u0610-\u061a\u064b-\u065f\u0900-\u0963\u0966-\u0dff"
# sets of characters only: a group would keep a state for each character of an endless word
_RUN = re.compile(rf"[\w{MARKS}{UNSPACED}]+")
_PART = re.compile(rf"([{UNSPACED}]+)|[^{UNSPACED}]+")


def words(text: str) -> Iterator[str]:
    """The first ``MOST_WORDS`` words of two or more characters, in lower case.

    A script without blanks has no words: its pairs of adjacent characters count instead.
    """
    return islice(_words(text), MOST_WORDS)


def _words(text: str) -> Iterator[str]:
    for match in _RUN.finditer(text.lower()):
        if match[0].isascii():
            if len(match[0]) > 1:
                yield match[0]
        else:
            yield from _parts(match[0])


def _parts(text: str) -> Iterator[str]:
    for match in _PART.finditer(text):
        run = match[1]
        if run is None:
            if len(match[0]) > 1:
                yield match[0]
        elif len(run) == 1:
            yield run
        else:
            for at in range(len(run) - 1):
                yield run[at : at + 2]


def hashed(text: str) -> NDArray[np.uint32]:
    """The hash of each word, in the order of the text."""
    return hashes(words(text))


def hashes(found: Iterable[str]) -> NDArray[np.uint32]:
    """The hash of each word."""
    return np.fromiter((zlib.crc32(word.encode("utf-8", "replace")) for word in found), np.uint32)
