"""Versions of documents, and conditions that a write sets on them.

A document's version is the time of the write that it comes from, ``updated``: of two states of one
document no two have the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Condition = frozenset[int] | Literal["there", "absent"]
"""What must stand before a write: one of some versions, any version, or no document."""

_FORM = re.compile("[0-9a-f]{1,16}")


@dataclass(frozen=True, slots=True)
class Standing:
    """What an index holds of a document.

    Attributes:
        updated: when it was written or deleted, in microseconds since the epoch.
        deleted: whether it is deleted.
        digest: of its content; empty where it was not asked for.
    """

    updated: int
    deleted: bool
    digest: str = ""


def text(updated: int) -> str:
    """The version as callers see it; they must not read anything into it."""
    return f"{updated:x}"


def condition(version: str) -> Condition:
    """What a caller's version asks for: "*" any version, "" that there is no document."""
    if version == "*":
        return "there"
    if not version:
        return "absent"
    # what no version looks like equals none
    return frozenset([int(version, 16)]) if _FORM.fullmatch(version) else frozenset()


def holds(condition: Condition, standing: Standing | None) -> bool:
    """Whether a document, or its absence, meets a condition."""
    version = present(standing)
    if condition == "absent":
        return version is None
    return version is not None and (condition == "there" or version in condition)


def present(standing: Standing | None) -> int | None:
    """The version of a document; None where it is not there."""
    return None if standing is None or standing.deleted else standing.updated


def clause(conditions: Mapping[str, Condition]) -> str:
    """SQL on the stored row (``target``) that holds where the row meets its document's condition.

    Conditions of the kind "absent" are not taken: no stored row is to meet them.
    """
    # its import takes seconds: routes read conditions before an index is opened
    from lancedb.expr import lit

    there = [lit(name).to_sql() for name, one in conditions.items() if one == "there"]
    exact = [
        lit(f"{updated}:{name}").to_sql()
        for name, one in conditions.items()
        if isinstance(one, frozenset)
        for updated in one
    ]
    parts = []
    if there:
        parts.append(f"target.id IN ({', '.join(there)})")
    if exact:
        # one list, since a chain of OR takes seconds to plan
        parts.append(
            f"(CAST(target.updated AS string) || ':' || target.id) IN ({', '.join(exact)})"
        )
    return f"target.deleted = false AND ({' OR '.join(parts) or 'false'})"
