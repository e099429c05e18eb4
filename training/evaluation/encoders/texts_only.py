"""A placeholder for tasks that measure the texts and need no encoder."""

from collections.abc import Sequence

from training.evaluation.encoders.interface import Features, Reading


class TextsOnly:
    """Replaces an encoder."""

    name = "the texts"
    kind = "texts"
    revision = "texts"
    readings: tuple[Reading, ...] = ("whole", "first")
    sparse = True

    def __init__(self) -> None:
        self.details: dict[str, str] = {}

    def fitted(self, texts: Sequence[str]) -> "TextsOnly":
        """Itself."""
        del texts
        return self

    def features(self, texts: Sequence[str], reading: Reading = "whole") -> Features:
        """Not available."""
        raise NotImplementedError

    def pace(self) -> float | None:
        """None, because it embeds nothing."""
        return None
