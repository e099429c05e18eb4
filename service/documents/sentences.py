"""Sentence boundaries, found locally and in linear time.

Every boundary depends only on the paragraph around it, so that an edit elsewhere in a document
leaves it where it was; the windows inherit this.
"""

from __future__ import annotations

import re

import sentencex

# sentencex takes time quadratic in the length of a text full of unclosed quotes (74 s for 1 MB),
# so it is given paragraphs, and a paragraph beyond this length is cut by the plain rule below.
LONGEST_PARAGRAPH = 8192
_PARAGRAPH_END = re.compile(r"\n[^\S\n]*\n\s*|(?<=[.!?:;。！？])[^\S\n]*\n\s*")
_PLAIN_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])\s*|\n+")


def sentence_starts(text: str, language: str = "en") -> list[int]:
    """Character offsets at which a sentence starts, ascending, without offset 0.

    Args:
        text: any text; white space before a sentence belongs to the one before it.
        language: ISO 639-1 code whose abbreviations and punctuation ``sentencex`` applies.
    """
    starts: list[int] = []
    begin = 0
    for match in _PARAGRAPH_END.finditer(text):
        if match.end() > begin:
            _append(starts, text, begin, match.end(), language)
            begin = match.end()
    _append(starts, text, begin, len(text), language)
    return [s for s in starts if 0 < s < len(text)]


def _append(starts: list[int], text: str, begin: int, end: int, language: str) -> None:
    starts.append(begin)
    paragraph = text[begin:end]
    if len(paragraph) > LONGEST_PARAGRAPH:
        starts.extend(
            begin + m.end() for m in _PLAIN_SENTENCE_END.finditer(paragraph) if m.end() > 0
        )
        return
    cursor = 0
    for sentence in sentencex.segment(language, paragraph):
        # sentencex may drop white space, so its sentences are looked up, not counted up
        found = paragraph.find(sentence, cursor)
        if found < 0:
            continue
        if found > 0 and not sentence.isspace():
            starts.append(begin + found)
        cursor = found + len(sentence)
