"""The words of a document: the columns ``words`` and ``terms``.

LanceDB indexes ``words``, the lines of ``docsplit.ranking.words``. ``terms`` counts words and pairs
of words as ``docsplit.ranking.terms`` does.
"""

from docsplit.ranking.terms import Bag, bag
from service.index.rows.seals import seal, unseal

COLUMN = "terms"
WORDS = "words"
# what an earlier version stored has other words, and counts as missing
_FORM = "words "


def sealed(text: str, digest: str) -> bytes:
    """The value for a text.

    Args:
        text: of the document.
        digest: value of the column ``digest``.
    """
    return seal(bag(text), _FORM + digest)


def opened(stored: bytes | None, digest: str) -> Bag | None:
    """The features of a stored value; None if it is missing or damaged."""
    return unseal(stored, _FORM + digest)
