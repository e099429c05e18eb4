"""Whether a name in a text stands for a document there, by the characters around it."""

from __future__ import annotations

import re

# characters before and after a title in its line, and those next to it
_AROUND = 200
_NEAR = 40
# a place may have line breaks and indents that the title lacks
_MOST_TIMES = 2
_MOST_MORE = 64
_SENTENCE = re.compile(r"[.!?;]\s")
_BLANK_LINE = re.compile(r"\n[^\S\n]*\n")
# between the parts of an identifier: "PEP\n484" is one, "PEP [3]" and "a step: 20 papers" are none
_BREAK = re.compile(r"[.!?:]\s|[,;()\[\]{}<>]|\n[^\S\n]*\n")
_MOST_BETWEEN = 6
# a longer number or another identifier: 3.11, 10.1000/1.2
_GOES_ON = re.compile(r"[.-]\d")
_CAME_BEFORE = re.compile(r"\d[.,/-]$")
# of a longer name, and of an issue of a repository or a list
_JOINED = re.compile(r"\w-$")
_OTHER = re.compile(r"s#\d|\n\s*\d\d?[.)]\s")
_WORD = re.compile(r"[^\W_]+")
_LEFT = re.compile(r"(?:^|[\n\"'“‘«‹《「『（【\[({<:;*_`.#/|>–—-])[ \t]*$")
_NUMBERED = re.compile(r"(?<!\w)\d{2,5}[-_]$")
_CAPITALISED = re.compile(r"[A-Z][^\W_]*[ \t]+$")
_COLON = re.compile(r":\s*[\"“'`]*$")
_UNDERLINE = re.compile(r"[ \t]*\n[ \t]*([-=~^'\"`*])\1{3,}[ \t]*(?:\n|$)")

# that programs give, and that stand in every second letter or report
_DEFAULT = re.compile(
    r"(?:untitled|unbenannt\w*|new|blank|my|google|word|excel|power ?point) ?(?:document|slides?"
    r"|presentation|spreadsheet|workbook|worksheet|page|message|note|file)?|copy of .*"
    r"|(?:sheet|slide|document|doc|book|workbook|presentation|page|table|figure|image|img|scan|part"
    r"|chapter|section|appendix|title|test|draft|version|report|no|without)"
    r" ?(?:of|title|name|subject)? ?[\divx]*|(?:thank you|dear|yours|sincerely)\b.{0,20}"
    r"|(?:(?:best|kind|warm|many) )?(?:regards|wishes|thanks)|(?:meeting )?(?:minutes|agenda|notes)"
    r"|(?:annual|quarterly|monthly|weekly|final|progress|status|technical) (?:report|review)s?"
    r"|microsoft \w+.*|table of contents|(?:terms|conditions) (?:of|and) \w+",
    re.IGNORECASE,
)

# a logistic regression of the links of specs_cite (docs/explanation/experiments/heads.md); the last
# is a share
_BIAS = -4.3
_MOST_WORDS = 8
_PER_WORD = 0.7
_AFTER_NUMBER = 4.2
_SAME_CAPITALS = 1.6
_NO_CAPITALS = -1.4
_AFTER_MARK = 0.2
_IN_HEADING = -2.1
_AFTER_CAPITAL = -0.5
_AFTER_COLON = 0.8
_SHARE_OF_LINE = 1.5


def breaks(identifier: str) -> frozenset[str]:
    """The marks of an identifier that would otherwise end it, as in "Regulation (EU) 2016/679"."""
    return frozenset([mark[0] for mark in _BREAK.findall(identifier)])


def is_default(title: str) -> bool:
    """Whether a title says nothing about its document."""
    return _DEFAULT.fullmatch(" ".join(re.findall(r"[^\W_]+", title))) is not None


def is_identifier(
    text: str, start: int, end: int, name: str, marks: frozenset[str] = frozenset()
) -> bool:
    """Whether a place in a text is an identifier, and not a part of another one.

    Args:
        text: that has the identifier's tokens.
        start: first character of the place.
        end: one past its last character.
        name: tokens of the identifier with blanks between them.
        marks: ``breaks`` of the identifier.
    """
    found = text[start:end]
    parts = name.count(" ")
    if len(found) > len(name) + _MOST_BETWEEN * parts or breaks(found) - marks:
        return False
    if _GOES_ON.match(text, end) or _OTHER.search(text, start, end + 2):
        return False
    if _JOINED.search(text, max(0, start - 2), start):
        return False
    if name[0].isdigit() and _CAME_BEFORE.search(text, max(0, start - 2), start):
        return False
    # without letters, "2020/117" is an identifier and "in 2020, 117 people" is none; words may also
    # have vowel signs, which are no letters
    return any(map(str.isalpha, name)) or not re.search(r"\s", found)


def is_title(text: str, start: int, end: int, title: str, size: int) -> bool:
    """Whether a place in a text is likely the title of a document, and not ordinary words.

    Args:
        text: that has the title's tokens.
        start: first character of the place.
        end: one past its last character.
        title: of the document.
        size: tokens of the title.
    """
    if end - start > _MOST_TIMES * len(title) + _MOST_MORE:
        return False
    found = text[start:end]
    if _BLANK_LINE.search(found) or (_SENTENCE.search(found) and not _SENTENCE.search(title)):
        return False
    before = text[max(0, start - _AROUND) : start]
    after = text[end : end + _AROUND]
    line = before[before.rfind("\n") + 1 :] + found + after.partition("\n")[0]
    heading = line.lstrip().startswith(("#", "=")) or _UNDERLINE.match(after)
    same = _WORD.findall(title) == _WORD.findall(found)
    capitals = title != title.lower()
    near = before[-_NEAR:]
    score = _BIAS + _PER_WORD * min(size, _MOST_WORDS)
    score += _SHARE_OF_LINE * min(1.0, len(found) / max(1, len(line.strip())))
    for holds, weight in (
        (_NUMBERED.search(near), _AFTER_NUMBER),
        (same and capitals, _SAME_CAPITALS),
        (same and not capitals and title != title.upper(), _NO_CAPITALS),
        (_LEFT.search(near), _AFTER_MARK),
        (heading, _IN_HEADING),
        (_CAPITALISED.search(near), _AFTER_CAPITAL),
        (_COLON.search(near), _AFTER_COLON),
    ):
        score += weight if holds else 0.0
    return score > 0
