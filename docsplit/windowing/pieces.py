"""Split a long text into pieces that are tokenised one at a time.

A tokenizer needs some 200 bytes of memory for each token until its answer is copied, so no call
may receive a text of any length.
"""

import re
from collections.abc import Iterator

Range = tuple[int, int]

SIZE = 16_384
# the longest piece, for every text
LONGEST = 2 * SIZE

_BLANK = re.compile(r"(?<=\S)\s")
_AFTER_PUNCTUATION = re.compile(r"(?<=[^\w\s])")
# letters and digits of scripts that tokenizers do not split into single characters
_PLAIN_WORD = re.compile(r"[^\W_\u1100-\U0003ffff]+")


def ranges(text: str, *, skip_long_words: bool = False) -> Iterator[Range]:
    """Yield ascending ranges of characters, each at most ``LONGEST`` long.

    A piece ends before white space if there is any. Pre-tokenizers split there, so the pieces have
    the same tokens as the whole text. Without white space a piece ends after punctuation, and
    without either it ends inside a word.

    Args:
        text: of any length.
        skip_long_words: leave out the rest of a word in which a piece ended. WordPiece makes one
            unknown token of any word of more than 100 characters, however long it is.
    """
    begin = 0
    while len(text) - begin > LONGEST:
        first, last = begin + SIZE, begin + LONGEST
        found = _BLANK.search(text, first, last) or _AFTER_PUNCTUATION.search(text, first, last)
        end = found.start() if found else last
        yield begin, end
        begin = end
        if not found and skip_long_words:
            at = first
            # in steps, because a match blocks all other threads
            while word := _PLAIN_WORD.match(text, at, at + SIZE):
                at = word.end()
            begin = max(begin, at)
    if begin < len(text) or not begin:
        yield begin, len(text)
