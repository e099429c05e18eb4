"""Choose the operators to keep, by what their rounding costs and what keeping them costs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from docsplit.bundles.manifest import KeptOperator

# A rounding with a smaller share of the error comes last, because avoiding it hardly helps.
_LEAST = 0.01
# A target with less reserve often misses by a little, because errors add only roughly.
_RESERVE = 0.8


@dataclass(frozen=True)
class Candidate:
    """A rounding that disappears if all ``operators`` stay in floating point.

    Attributes:
        operators: names of the operators, with their kinds.
        error: measured rise of the distance to the exact outputs by this rounding.
    """

    operators: Mapping[str, str]
    error: float


class Choice:
    """The operators that stay in floating point.

    Args:
        candidates: every rounding that can be avoided.
        multiplications: for each token, by the name of an operator with weights.
    """

    def __init__(self, candidates: Sequence[Candidate], multiplications: Mapping[str, int]) -> None:
        self._candidates = candidates
        self._multiplications = multiplications
        self.kept: dict[str, KeptOperator] = {}

    @property
    def multiplications(self) -> float:
        """Share of the multiplications with weights that the kept operators do."""
        total = sum(self._multiplications.values())
        return self._cost(self.kept) / total if total else 0.0

    @property
    def error(self) -> float:
        """Error that keeping operators can still remove."""
        return sum(c.error for c in self._left())

    def reduce(self, share: float) -> bool:
        """Keep more operators until ``share`` of the present error remains.

        Operators without weights come first, because they cost least; then those that remove most
        error for each multiplication.

        Returns:
            Whether there was an operator to keep.
        """
        left = self._left()
        target = _RESERVE * share * self.error
        grown = False
        while left and sum(c.error for c in left) > target:
            least = _LEAST * self.error
            best = min(left, key=lambda c: (c.error < least, *self._rank(c)))
            for name, kernel in best.operators.items():
                if name not in self.kept:
                    self.kept[name] = KeptOperator(kernel=kernel, error=float(f"{best.error:.3g}"))
            grown = True
            left = self._left()
        return grown

    def _left(self) -> list[Candidate]:
        return [c for c in self._candidates if not c.operators.keys() <= self.kept.keys()]

    def _rank(self, candidate: Candidate) -> tuple[float, float]:
        cost = self._cost(candidate.operators.keys() - self.kept.keys())
        return cost / max(candidate.error, 1e-12), -candidate.error

    def _cost(self, names: Collection[str]) -> int:
        return sum(self._multiplications.get(name, 0) for name in names)
