"""What a repair did."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Outcome:
    """What a repair did, a line each.

    Attributes:
        mended: what is as it was written, or computed anew.
        lost: what is gone for good, by name where that is known.
        left: what still is damaged, with what would mend it.
    """

    mended: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
