"""Sentence segmentation.

The project uses ``sentencex``, not blingfire or pysbd: ``docs/explanation/decisions.md`` has their
speed and how they treat abbreviations.
"""

import re
from itertools import pairwise

from sentencex import segment

from docsplit.windowing.sentences import LONGEST_PARAGRAPH, sentence_starts

_HALVES = re.compile("[\ud800-\udfff]")
_EMPTY_LINES = re.compile(r"\n{2,}")


def split_sentences(text: str, language: str = "en") -> list[str]:
    """Non-empty sentences of ``text`` in order, without surrounding white space.

    Args:
        text: any text.
        language: ISO 639-1 code. A language without its own rules uses those of a related
            language or of English.
    """
    pieces: list[str] = []
    for paragraph in _EMPTY_LINES.split(valid(text)):
        if len(paragraph) <= LONGEST_PARAGRAPH:
            pieces += segment(language, paragraph)
            continue
        # sentencex would take hours for some paragraphs of megabytes, such as Chinese ones
        places = [0, *sentence_starts(paragraph, language), len(paragraph)]
        pieces += [paragraph[start:end] for start, end in pairwise(places)]
    return [piece for piece in map(str.strip, pieces) if piece]


def valid(text: str) -> str:
    """The text with U+FFFD for halves of surrogate pairs, which JSON can hold and no tokenizer
    reads."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return _HALVES.sub("\ufffd", text)
    return text
