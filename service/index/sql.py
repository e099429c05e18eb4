"""Conditions as SQL, for what LanceDB does not take as an expression.

Queries and deletions take expressions. Counts, merges, updates and tests of lists take text only.
``Expr.to_sql()`` of LanceDB 0.40 is for messages: it doubles no apostrophe that stands beside
another one or behind a backslash. So this is the only module that makes SQL.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NewType

Sql = NewType("Sql", str)
"""A condition."""

Sign = Literal["=", "<>", "<", "<=", ">", ">="]
Value = bool | int | float | str

NEVER = Sql("false")
LIVE = Sql("deleted = false")


def literal(value: Value) -> str:
    """A value as SQL; a text keeps every character, and only its apostrophes are doubled."""
    match value:
        case str():
            return "'" + value.replace("'", "''") + "'"
        case bool():
            return str(value).lower()
        case int() if value == -(2**63):
            # SQL reads a minus and a number, and 2**63 is no 64-bit integer
            return f"CAST('{value}' AS bigint)"
    return repr(value)


def compare(column: str, sign: Sign, value: Value) -> Sql:
    """The condition that a column is equal to a value, less, …"""
    return Sql(f"{column} {sign} {literal(value)}")


def among(column: str, values: Iterable[Value]) -> Sql:
    """The condition that a column has one of some values."""
    listed = ", ".join(map(literal, values))
    return Sql(f"{column} IN ({listed})") if listed else NEVER


def overlaps(column: str, texts: Iterable[str]) -> Sql:
    """The condition that a list of strings has one of some texts."""
    return Sql(f"array_has_any({column}, [{', '.join(map(literal, texts))}])")


def given(column: str) -> Sql:
    """The condition that a column has a value."""
    return Sql(f"{column} IS NOT NULL")


def negated(condition: Sql) -> Sql:
    """The condition that another one does not hold."""
    return Sql(f"NOT ({condition})")


def every(*conditions: Sql) -> Sql:
    """The condition that all of some hold; side by side, because LanceDB limits the nesting."""
    return Sql(" AND ".join(f"({one})" for one in conditions))


def some(*conditions: Sql) -> Sql:
    """The condition that at least one of some holds."""
    return Sql(" OR ".join(f"({one})" for one in conditions)) if conditions else NEVER


def within(column: str, first: int, end: int) -> Sql:
    """The condition ``first <= column < end``."""
    return every(compare(column, ">=", first), compare(column, "<", end))
