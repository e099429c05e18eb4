"""Finds names of documents, such as "PEP 484" or a title, in texts.

A name is a sequence of tokens: words, numbers, and single characters of scripts without blanks.
Case, accents, leading zeros and everything between the tokens do not count, so "PEP 484" matches
``:pep:`484```, and a title matches across line breaks. Of overlapping names the first and longest
counts. An Aho-Corasick automaton (Aho and Corasick 1975) finds all names in linear time.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import compress, islice

import numpy as np
from ahocorasick_rs import AhoCorasick, Implementation, MatchKind

from docsplit.ranking.words import MARKS, SILENT, UNSPACED, WIDE_MARK, folded

# a longer name never matches
MOST_TOKENS = 64
# distinct tokens of all names: Unicode has no more characters
_MOST_CODES = 1_000_000
# characters that one step reads; the interpreter's lock is held for some milliseconds
_STEP = 1 << 16
# a name that is longer in a text, by blanks for example, may be missed
_MOST_LENGTH = 4096
# a run of characters that is cut at this length is no word of any language
_RUN = re.compile(rf"(?:[\w{MARKS}{SILENT}&]|{WIDE_MARK}){{1,64}}")
_TOKEN = re.compile(rf"\d+|[{UNSPACED}&]|[^\d_{UNSPACED}&]+")
# of a word at a line's end
_DIVIDED = re.compile(
    r"[-\u2010\u00ad](?:(?<=[^\W\d_][-\u2010])[^\S\n]{0,9}\n[^\S\n]{0,9}|(?<=\u00ad)\s{0,9})"
    r"([^\W\d_]{1,64})"
)
_UNSPACED = re.compile(f"[{UNSPACED}]")
_PIECE = re.compile(r"\S+")
# pieces between blanks that are remembered, and their characters
_KEPT, _KEPT_LENGTH = 1 << 17, 48
_SURROGATES = range(0xD800, 0xE000)
_UNKNOWN = "\0"


@dataclass(frozen=True, slots=True)
class Mention:
    """A place where a text has a name.

    Attributes:
        name: position of the name in the list of names.
        start: first character.
        end: one past the last character.
    """

    name: int
    start: int
    end: int


def tokens(name: str) -> list[str]:
    """The tokens of a name, as they are compared; none has a blank."""
    return [_folded(token) for run in _RUN.findall(name) for token in _TOKEN.findall(run)]


def joined(text: str) -> str:
    """A text of the same length without words that are divided at a line's end."""
    return _DIVIDED.sub(lambda cut: cut[1].ljust(len(cut[0]) - 1) + "\n", text)


def undivided(text: str, start: int, end: int) -> int:
    """The end of a place in the text of which ``joined`` made another one."""
    cuts = _DIVIDED.finditer(text, max(start, end - 64), end + 84)
    return next((cut.end() for cut in cuts if cut.start() < end < cut.end()), end)


class Matcher:
    """Finds names in texts; it only reads, so threads may share it.

    Args:
        names: tokens of each with blanks between them, distinct. Names without tokens, with more
            than ``MOST_TOKENS``, and with new tokens after the first million never match.

    Attributes:
        left_out: number of names that never match.
    """

    def __init__(self, names: Sequence[str]) -> None:
        codes: dict[str, str] = {}
        patterns: list[str] = []
        self._names = array("L")
        for number, name in enumerate(names):
            parts = name.split()
            new = [token for token in dict.fromkeys(parts) if token not in codes]
            if not 0 < len(parts) <= MOST_TOKENS or len(codes) + len(new) > _MOST_CODES:
                continue
            for token in new:
                codes[token] = _character(len(codes))
            patterns.append("".join([codes[token] for token in parts]))
            self._names.append(number)
        self.left_out = len(names) - len(patterns)

        self._pieces = _Pieces(codes)
        self._automaton = AhoCorasick(
            patterns,
            matchkind=MatchKind.LeftmostLongest,
            store_patterns=False,
            implementation=Implementation.ContiguousNFA,
        )

    def find(self, text: str) -> Iterator[Mention]:
        """The names in a text in the order of their places; they do not overlap.

        It takes time in proportion to the text, and memory in proportion to ``_STEP``.
        """
        at = 0
        while at < len(text):
            end = _cut(text, at)
            # a name that begins after this may go on after the step
            decided = end if end == len(text) else max(at + 1, end - _MOST_LENGTH)
            after = decided
            for mention in self._within(text, at, end):
                if mention.start >= decided:
                    break
                after = max(after, mention.end)
                if _whole(text, mention.start, mention.end):
                    yield mention
            at = after

    def _within(self, text: str, start: int, end: int) -> Iterator[Mention]:
        codes = [*map(self._pieces.__getitem__, text[start:end].split())]
        found = self._automaton.find_matches_as_indexes("".join(codes))
        if not found:
            return
        # the number of tokens up to the end of each piece, and before it
        sizes = np.fromiter(map(len, codes), np.int64, len(codes))
        counts = np.cumsum(sizes)
        numbers, firsts, ends = np.array(found).T
        pieces = np.searchsorted(counts, np.stack((firsts, ends - 1)), side="right")
        wanted = np.zeros(len(codes), bool)
        wanted[pieces] = True
        spans = [one.span() for one in compress(_PIECE.finditer(text, start, end), wanted.tolist())]
        kept = np.cumsum(wanted) - 1
        befores = counts - sizes
        places = np.stack((firsts, ends - 1)) - befores[pieces]
        for number, (one, other), (first, last) in zip(
            numbers.tolist(), kept[pieces].T.tolist(), places.T.tolist(), strict=True
        ):
            begin = _token(text, spans[one], first)[0]
            stop = _token(text, spans[other], last)[1]
            yield Mention(self._names[number], begin, stop)


class _Pieces(dict[str, str]):
    """The codes of the tokens of what stands between two blanks, one character for each."""

    def __init__(self, codes: dict[str, str]) -> None:
        super().__init__()
        self._codes = codes

    def __missing__(self, piece: str) -> str:
        found = "".join([self._codes.get(token, _UNKNOWN) for token in tokens(piece)])
        if len(piece) <= _KEPT_LENGTH:
            if len(self) >= _KEPT:
                self.clear()
            self[piece] = found
        return found


def _token(text: str, piece: tuple[int, int], number: int) -> tuple[int, int]:
    """First character of a token of a piece, and one past its last."""
    runs = (run.span() for run in _RUN.finditer(text, *piece))
    found = (token.span() for run in runs for token in _TOKEN.finditer(text, *run))
    return next(islice(found, number, None))


def _folded(token: str) -> str:
    if token.isascii():
        return (token.lstrip("0") or "0") if token.isdigit() else token.lower().replace("&", "and")
    # some characters stand for several words
    plain = "".join(folded(token).split()) or token
    # of other scripts
    return (plain.lstrip("0") or "0") if plain.isdigit() else plain


def _character(number: int) -> str:
    """The character of a code; 0 stands for unknown tokens."""
    code = number + 1
    return chr(code if code < _SURROGATES.start else code + len(_SURROGATES))


def _cut(text: str, start: int) -> int:
    """The end of a step: after a blank, if there is one, so that no word is cut."""
    if len(text) - start <= _STEP:
        return len(text)
    latest = start + _STEP
    blanks = [text.rfind(blank, latest - _MOST_LENGTH, latest) for blank in " \n"]
    return max(*blanks, 0) + 1 if max(blanks) > start else latest


def _whole(text: str, start: int, end: int) -> bool:
    """Whether a place is not a part of a longer word or number."""
    return not (_goes_on(text, start) or _goes_on(text, end))


def _goes_on(text: str, at: int) -> bool:
    """Whether a word goes on at a place; none does beside a script without blanks."""
    if not 0 < at < len(text):
        return False
    around = text[at - 1 : at + 1]
    return around.isalnum() and not _UNSPACED.search(around)
