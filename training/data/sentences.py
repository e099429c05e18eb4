"""Sentence segmentation.

The project uses ``sentencex``, not blingfire or pysbd. ``studies/sentence_segmentation.py``
compares their speed and how they treat abbreviations; ``docs/explanation/decisions.md`` has the
figures.
"""

import re

from sentencex import segment

_HALVES = re.compile("[\ud800-\udfff]")


def split_sentences(text: str, language: str = "en") -> list[str]:
    """Non-empty sentences of ``text`` in order, without surrounding white space.

    Args:
        text: any text.
        language: ISO 639-1 code. A language without its own rules uses those of a related
            language or of English.
    """
    return [piece for piece in map(str.strip, segment(language, valid(text))) if piece]


def valid(text: str) -> str:
    """The text with U+FFFD for halves of surrogate pairs, which JSON can hold and no tokenizer
    reads."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return _HALVES.sub("\ufffd", text)
    return text
