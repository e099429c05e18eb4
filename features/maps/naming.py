"""Names topics by the words that distinguish their documents (class TF-IDF, Grootendorst 2022).

A word counts once for each document, so one long document cannot name a topic.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence

from docsplit.ranking.words import placed

# characters of a text that count
CHARACTERS = 4000
WORDS = 10
# a word names a topic if this share of its documents have it, and so many times the share of others
_LEAST_SHARE = 0.15
_LEAST_RATIO = 2
# the head of a mail, lines of "Name: value" around that of the sender, and addresses
_NO_WORDS = re.compile(
    r"^(?:[\w-]+:.*\n){0,40}(?:From|Von|De|Da):.*(?:\n[\w-]+:.*|\n[ \t]+\S.*)*|\S+@\S+|\w+://\S+",
    re.M,
)


def counted(text: str) -> Counter[str]:
    """The words of a text, once each, without numbers, addresses and heads of mails."""
    text = _NO_WORDS.sub(" ", text[:CHARACTERS])
    # as the text writes them
    return Counter(set(filter(_speaks, (text[a:b].lower() for _, a, b in placed(text)))))


def names(counts: Sequence[Counter[str]], documents: Sequence[int]) -> list[list[str]]:
    """The words of each topic, the best first; its most frequent ones if none distinguish it.

    Args:
        counts: in how many of a topic's documents each word is.
        documents: number of each topic's documents that were read.
    """
    everywhere: Counter[str] = Counter()
    for own in counts:
        everywhere.update(own)
    total = sum(documents)
    found = []
    for own, number in zip(counts, documents, strict=True):
        scores = {
            word: count / number * math.log(1 + total / everywhere[word]) ** 2
            for word, count in own.items()
            if count >= max(2, _LEAST_SHARE * number)
            and count * (total - number) >= _LEAST_RATIO * (everywhere[word] - count) * number
        }
        # tiny documents that differ in numbers alone share all their words with the others
        ranked: Mapping[str, float] = scores or own
        found.append(_distinct(sorted(ranked, key=lambda word: (-ranked[word], word))))
    return found


def _distinct(ranked: Sequence[str]) -> list[str]:
    """The first words without those that another one begins with, such as plurals."""
    found: list[str] = []
    for word in ranked:
        if len(found) == WORDS:
            break
        if not any(_same(word, other) for other in found):
            found.append(word)
    return found


def _same(word: str, other: str) -> bool:
    short, long = sorted((word, other), key=len)
    return len(short) > 3 and len(long) - len(short) < 3 and long.startswith(short)


def _speaks(word: str) -> bool:
    return not word.isascii() or (len(word) > 2 and not any(map(str.isdigit, word)))
