"""Types of the views and of their input."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from training.settings import ObjectiveSettings

Ids = npt.NDArray[np.integer[Any]]
Document = Sequence[Ids]
View = list[Ids]
Pair = tuple[View, View | None]


@dataclass(frozen=True)
class ViewContext:
    """What the views need in addition to the document.

    Attributes:
        objective: the settings.
        window: longest view in tokens, special tokens not counted.
        mask_id: id of the mask token; -1 where the vocabulary has none.
        word_starts: bool ``[vocabulary]``, true for tokens that begin a word.
    """

    objective: ObjectiveSettings
    window: int
    mask_id: int
    word_starts: npt.NDArray[np.bool_]


class ViewFunction(Protocol):
    """Draws two views of a document."""

    def __call__(self, document: Document, rng: np.random.Generator, context: ViewContext) -> Pair:
        """The two views. The same generator state gives the same views."""
        ...


def tokens_of(sentences: Sequence[Ids]) -> Ids:
    """All ids of some sentences in one array."""
    return np.concatenate(sentences)
