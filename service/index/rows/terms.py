"""The column ``terms``: a document's words and pairs of words, as ``ranking.bags`` has them."""

from ranking.bags import Bag, bag
from service.index.rows.seals import seal, unseal

COLUMN = "terms"


def sealed(text: str, digest: str) -> bytes:
    """The value for a text.

    Args:
        text: of the document.
        digest: value of the column ``digest``.
    """
    return seal(bag(text), digest)


def opened(stored: bytes | None, digest: str) -> Bag | None:
    """The features of a stored value; None if it is missing or damaged."""
    return unseal(stored, digest)
