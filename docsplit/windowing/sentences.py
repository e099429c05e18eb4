"""Find sentence boundaries, locally and in linear time.

Every boundary depends only on the paragraph around it. An edit elsewhere in a document does not
move it, and the windows inherit this. No call runs a regular expression over more than ``_STEP``
characters, because regular expressions hold the GIL.
"""

import re
from collections.abc import Iterator
from itertools import pairwise

import sentencex

# sentencex takes quadratic time for a text full of unclosed quotes (74 s for 1 MB). So it receives
# paragraphs, and the plain rule below cuts a paragraph that is longer than this.
LONGEST_PARAGRAPH = 8192
# A sentence beyond this is a list or a table without marks, so its lines end like sentences. In one
# that is shorter, lines are wrapped.
_LONGEST_SENTENCE = 1000
# What sentencex takes for ends: words before the number of a provision or a figure, and the German
# ordinal before a noun. Its German rules end no sentence before a number, so they do not
# decide there.
_NUMBERED = re.compile(
    r"(?:\b(?:eqs?|tabs?|approx|paras?|arts?|civ|abs|ziff|anm|abb|nr|bd|kap|ca|max|inkl|par|al|env|s"
    r"|vol|figs?)|\wstr)\.\s*$",
    re.IGNORECASE,
)
_ORDINAL = re.compile(r"\b(?:im|der|des|dem|vom|zum|das) \d{1,2}\.\s*$", re.IGNORECASE)
# the mark of a note belongs to the sentence before it
_NOTE = re.compile(r"(?:[\u00b9\u00b2\u00b3\u2070\u2074-\u2079]+|\[\^?\d{1,3}\])\s*")
_STEP = 65_536
_SPACE = re.compile(r"\s*")
_NEWLINES = re.compile(r"\n+")
# They need no blank behind them: Chinese, Armenian, Arabic, Urdu, Hindi, Burmese, Ethiopic.
_FULL_MARKS = "。！？｡\u0589\u061f\u06d4\u0964\u0965\u104b\u1362\u1367"
_PLAIN_END = re.compile(rf"[.!?{_FULL_MARKS}\n]")
_PARAGRAPH_MARKS = frozenset(".!?:;" + _FULL_MARKS)


def sentence_starts(text: str, language: str = "en") -> list[int]:
    """Character offsets at which sentences start, ascending, without offset 0.

    Args:
        text: any text; white space before a sentence belongs to the sentence before.
        language: ISO 639-1 code; ``sentencex`` applies its abbreviations and punctuation.
    """
    starts: list[int] = []
    begin = 0
    for end in _paragraph_ends(text):
        _append(starts, text, begin, end, language)
        begin = end
    _append(starts, text, begin, len(text), language)
    return [s for s in starts if 0 < s < len(text)]


def _paragraph_ends(text: str) -> Iterator[int]:
    """Ends of white space that contains an empty line, or a line end after punctuation."""
    at = text.find("\n")
    while at >= 0:
        end = _end_of_space(text, at)
        first = at
        while first and text[first - 1].isspace():
            first -= 1
        before = text[first - 1 : first]
        if text.count("\n", at, end) > 1 or before in _PARAGRAPH_MARKS:
            yield end
        at = text.find("\n", end)


def _plain_ends(text: str) -> Iterator[int]:
    """Ends of white space after a mark that ends a sentence, or a line."""
    at = 0
    while at < len(text):
        found = _PLAIN_END.search(text, at, at + _STEP)
        if found is None:
            at += _STEP
            continue
        after = found.end()
        at = _end_of_space(text, after)
        if found[0] == "\n":
            at = _end_of_run(_NEWLINES, text, found.start())
        if at > after or found[0] not in ".!?":
            yield at


def _end_of_space(text: str, at: int) -> int:
    return _end_of_run(_SPACE, text, at)


def _end_of_run(pattern: re.Pattern[str], text: str, at: int) -> int:
    while (found := pattern.match(text, at, at + _STEP)) and found.end() == at + _STEP:
        at += _STEP
    return found.end() if found else at


def _append(starts: list[int], text: str, begin: int, end: int, language: str) -> None:
    starts.append(begin)
    paragraph = text[begin:end]
    if len(paragraph) > LONGEST_PARAGRAPH:
        starts.extend(begin + end for end in _plain_ends(paragraph))
        return
    for first, last in pairwise((0, *_ends(paragraph, language), len(paragraph))):
        if first:
            starts.append(begin + first)
        if last - first > _LONGEST_SENTENCE:
            lines = (line.end() for line in _NEWLINES.finditer(paragraph, first, last))
            starts.extend(begin + at for at in lines if at < last)


def _ends(paragraph: str, language: str) -> Iterator[int]:
    """Ends of the sentences but the last, white space included, by the rules of a language."""
    cursor = 0
    for sentence in sentencex.segment(language, paragraph):
        # sentencex may drop white space, so search for its sentences instead of adding lengths
        found = paragraph.find(sentence, cursor)
        if found < 0:
            continue
        cursor = found + len(sentence)
        if found == 0 or sentence.isspace():
            continue
        before = paragraph[max(0, found - 20) : found]
        if _ORDINAL.search(before) or (sentence[0].isdigit() and _NUMBERED.search(before)):
            continue
        note = None if before[-1].isspace() else _NOTE.match(paragraph, found)
        end = note.end() if note else found
        if end < len(paragraph):
            yield end
