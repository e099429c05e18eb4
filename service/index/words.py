"""The words of a document that a full-text search asks for."""

from __future__ import annotations

import re
from collections import Counter

_WORD = re.compile(r"\w{3,}")
# On 2,766 specifications (120 queries, MRR of the documents they cite): the whole text .437 in
# 101 ms a query, the 256 most frequent words .458 in 14 ms, 512 words .425.
MOST_WORDS = 256


def frequent(text: str, most: int = MOST_WORDS) -> str:
    """The most frequent words of three or more characters, once each; stop words are Lance's."""
    counts = Counter(word.lower() for word in _WORD.findall(text))
    return " ".join(word for word, _ in counts.most_common(most))
