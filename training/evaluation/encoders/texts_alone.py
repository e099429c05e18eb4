"""No encoder: for what is a property of the texts."""

from __future__ import annotations

from collections.abc import Sequence

from training.evaluation.encoders.interface import Features, Reading


class TextsAlone:
    """Stands where an encoder would."""

    name = "the texts"
    kind = "texts"
    revision = "texts"
    readings: tuple[Reading, ...] = ("whole", "first")
    sparse = True

    def __init__(self) -> None:
        self.details: dict[str, str] = {}

    def fitted(self, texts: Sequence[str]) -> TextsAlone:
        """Itself."""
        del texts
        return self

    def features(self, texts: Sequence[str], reading: Reading = "whole") -> Features:
        """There are none."""
        raise NotImplementedError

    def pace(self) -> float | None:
        """None: nothing is embedded."""
        return None
