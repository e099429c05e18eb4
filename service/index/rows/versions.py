"""Versions of documents, and conditions that writes set on them.

A document's version is the time of its last write, ``updated``. No two states of one document
have the same version.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from service.index import sql
from service.index.sql import Sql

Condition = frozenset[int] | Literal["there", "absent"]
"""The required state before a write: one of some versions, any version, or no document."""

# a write that others overtake begins again so often
ATTEMPTS = 100

_FORM = re.compile("[0-9a-f]{1,16}")


@dataclass(frozen=True, slots=True)
class Standing:
    """The state of a document in an index.

    Attributes:
        updated: when it was written or deleted, in microseconds since the epoch.
        digest: of its content; empty if the caller did not ask for it.
    """

    updated: int
    deleted: bool
    digest: str = ""


def text(updated: int) -> str:
    """The version as clients see it; it has no meaning for them."""
    return f"{updated:x}"


def condition(version: str) -> Condition:
    """The condition in a client's version: "*" any version, "" no document."""
    if version == "*":
        return "there"
    if not version:
        return "absent"
    # a text that is not a version matches none
    return frozenset([int(version, 16)]) if _FORM.fullmatch(version) else frozenset()


def holds(condition: Condition, standing: Standing | None) -> bool:
    """Whether a document, or its absence, meets a condition."""
    version = present(standing)
    if condition == "absent":
        return version is None
    return version is not None and (condition == "there" or version in condition)


def present(standing: Standing | None) -> int | None:
    """The version of a document; None if it is absent."""
    return None if standing is None or standing.deleted else standing.updated


def clause(conditions: Mapping[str, Condition]) -> Sql:
    """That the stored row (``target``) meets its document's condition.

    Leaves out conditions of the kind "absent": no stored row can meet them.
    """
    there = [name for name, one in conditions.items() if one == "there"]
    exact = [
        f"{updated}:{name}"
        for name, one in conditions.items()
        if isinstance(one, frozenset)
        for updated in one
    ]
    # one list: a chain of OR takes seconds to plan
    state = "(CAST(target.updated AS string) || ':' || target.id)"
    return sql.every(
        sql.compare("target.deleted", "=", False),
        sql.some(sql.among("target.id", there), sql.among(state, exact)),
    )


def after(standing: Standing | None, now: int = 0) -> int:
    """Now, or later if the state came from a machine with a fast clock."""
    return max(now or microseconds(), standing.updated + 1 if standing else 0)


def microseconds() -> int:
    """The time now, since the epoch."""
    return time.time_ns() // 1000
