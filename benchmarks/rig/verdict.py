"""Compare an aim with its measured figure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Verdict:
    """An aim and its figure."""

    aim: str
    figure: float
    bound: float
    most: bool = False

    @property
    def held(self) -> bool:
        """Whether the figure is on the right side of the bound."""
        return self.figure <= self.bound if self.most else self.figure >= self.bound
