"""How much each window of a document counts in its vector."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

# characters that are counted at once; the interpreter runs no other thread meanwhile
_PIECE = 1 << 16

# (start, end) in a text, in code points
Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Weighing:
    """A rule for the weights of windows.

    Attributes:
        unit: what is counted. Tables, numbers and code have fewer letters for each token than
            sentences have, and say less about the subject.
        first: how many times those of the first window count.
    """

    unit: Literal["tokens", "letters"] = "tokens"
    first: float = 1.0

    def weights(self, text: str, spans: Sequence[Span], tokens: Sequence[int]) -> list[float]:
        """The weight of each window of a document.

        Args:
            text: of the document.
            spans: of the windows.
            tokens: of each window.
        """
        if len(spans) == 1:
            return [1.0]
        if self.unit == "tokens":
            found = [float(count) for count in tokens]
        else:
            # a document of numbers has a vector too
            found = [max(1.0, _letters(text, *span)) for span in spans]
        return [found[0] * self.first, *found[1:]]


def _letters(text: str, start: int, end: int) -> int:
    pieces = (text[at : min(at + _PIECE, end)] for at in range(start, end, _PIECE))
    return sum(sum(map(str.isalpha, piece)) for piece in pieces)
