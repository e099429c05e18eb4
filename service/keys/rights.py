"""The indexes and classifiers that a key may use."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase


class Right(enum.StrEnum):
    """A kind of access; the keys' file has a field of the same name."""

    READ_INDEXES = "read_indexes"
    WRITE_INDEXES = "write_indexes"
    USE_CLASSIFIERS = "use_classifiers"
    TRAIN_CLASSIFIERS = "train_classifiers"


@dataclass(frozen=True, slots=True)
class Rights:
    """Patterns of names for each right.

    Attributes:
        patterns: names with ``*`` and ``?`` as in shells; a missing right allows no name.
    """

    patterns: Mapping[Right, tuple[str, ...]]

    def may(self, right: Right, name: str) -> bool:
        """Whether one of the right's patterns matches."""
        return any(fnmatchcase(name, pattern) for pattern in self.patterns.get(right, ()))


EVERYTHING = Rights(dict.fromkeys(Right, ("*",)))
