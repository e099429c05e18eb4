"""The library: vectors, windows and rankings of whole documents, in a process.

>>> from docsplit import Encoder
>>> vectors = Encoder().embed(["A whole document, however long."])
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from docsplit.encoder import Document as Document
    from docsplit.encoder import EmptyTextError as EmptyTextError
    from docsplit.encoder import Encoder as Encoder

__all__ = ["Document", "EmptyTextError", "Encoder"]


def __getattr__(name: str) -> Any:
    """Import the encoder when it is first used: small parts of the library start without it."""
    if name not in __all__:
        raise AttributeError(f"module 'docsplit' has no attribute {name!r}")
    from docsplit import encoder

    return getattr(encoder, name)
