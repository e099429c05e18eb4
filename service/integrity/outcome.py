"""The result of a repair."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Outcome:
    """The result of a repair, one line for each item.

    Attributes:
        repaired: restored or computed again.
        lost: gone for good, by name if that is known.
        left: still damaged, with the remedy.
    """

    repaired: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)

    def once(self) -> None:
        """Keep each line once; a row that another process moved is repaired twice."""
        for lines in (self.repaired, self.lost, self.left):
            lines[:] = dict.fromkeys(lines)
