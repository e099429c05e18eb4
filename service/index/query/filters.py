"""The filter language of ``/similar`` and its translation into a LanceDB expression.

A filter is one JSON object of these forms::

    {"field": "year", "eq": 2020}             also ne
    {"field": "status", "in": ["Final", "Active"]}
    {"field": "year", "gte": 2010, "lt": 2020}  any of gt, gte, lt, lte
    {"field": "tags", "contains": "a"}          of a list of strings; in: any of several
    {"and": [...]}, {"or": [...]}, {"not": {...}}

A filter becomes an expression of LanceDB and the same in SQL, which counts and tests of lists need.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from sys import float_info
from typing import TYPE_CHECKING, Annotated, Any

import pyarrow as pa
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    model_validator,
)

from service.errors import InvalidError
from service.index import sql
from service.index.rows.fields import INT64, FieldType, column, column_name, declared, fits
from service.index.sql import Sign, Sql
from service.unknown import field_names, unknown_name

if TYPE_CHECKING:
    from lancedb.expr import Expr

    from service.index.documents import Index


@dataclass(frozen=True, slots=True)
class Where:
    """A condition on the columns of an index.

    Attributes:
        sql: the condition, for counts.
        expression: the same; None if it tests a list, for which LanceDB has no expression.
    """

    sql: Sql
    expression: Expr | None

    @property
    def form(self) -> Expr | Sql:
        """What a query takes."""
        return self.sql if self.expression is None else self.expression


MAX_CONDITIONS = 64
MAX_DEPTH = 8
MAX_VALUES = 1000
# parts of a vector index that a search with a filter reads at least
FILTERED_PARTS = 50
# rows of a part (LanceDB's default), and rows that pass a filter and that a search compares
_PART_ROWS, _PASSING = 4096, 2000

TEXT_CHARACTERS = 4096

_EXAMPLE = '; an example: {"field": "year", "gte": 2020}'

Number = Annotated[float, Field(allow_inf_nan=False)]


def _single(value: Any) -> Any:
    if not isinstance(value, bool | int | float | str):
        raise ValueError("give a string, a number or a boolean; in takes a list of them")
    if isinstance(value, str):
        if len(value) > TEXT_CHARACTERS:
            raise ValueError(f"give a text of {TEXT_CHARACTERS} or fewer characters")
    elif not abs(value) <= float_info.max:
        raise ValueError("give a finite number")
    return value


# without the checks, an error speaks of the first of the types
Value = Annotated[
    bool
    | Annotated[int, Field(ge=INT64.start, lt=INT64.stop)]
    | Number
    | Annotated[str, Field(max_length=TEXT_CHARACTERS)],
    BeforeValidator(_single),
]


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", serialize_by_alias=True)


class Condition(_Strict):
    """A test of one metadata field; a document without the field never passes.

    Several tests of one field must all hold.
    """

    field: str = Field(max_length=64)
    eq: Value | None = None
    ne: Value | None = None
    gt: Value | None = None
    gte: Value | None = None
    lt: Value | None = None
    lte: Value | None = None
    among: list[Value] | None = Field(
        None, alias="in", min_length=1, max_length=MAX_VALUES, fail_fast=True
    )

    contains: Annotated[str, Field(max_length=TEXT_CHARACTERS)] | None = None

    @model_validator(mode="after")
    def _one_test(self) -> Condition:
        if not self.tests():
            raise ValueError(
                f"give one of eq, ne, in, gt, gte, lt, lte, contains with a value{_EXAMPLE}"
            )
        return self

    def tests(self) -> dict[str, Any]:
        """Operators that were given, with their values."""
        return {k: v for k, v in self.model_dump().items() if k != "field" and v is not None}


class And(_Strict):
    """All parts must hold."""

    every: list[Node] = Field(alias="and", min_length=1, max_length=MAX_CONDITIONS, fail_fast=True)


class Or(_Strict):
    """At least one part must hold."""

    some: list[Node] = Field(alias="or", min_length=1, max_length=MAX_CONDITIONS, fail_fast=True)


class Not(_Strict):
    """The part must not hold; a document without the field passes neither way."""

    negated: Node = Field(alias="not")


_COMBINING = ("and", "or", "not")


def _kind(value: Any) -> str:
    for kind in _COMBINING:
        if isinstance(value, dict) and kind in value:
            return kind
    return "condition"


Node = Annotated[
    Annotated[And, Tag("and")]
    | Annotated[Or, Tag("or")]
    | Annotated[Not, Tag("not")]
    | Annotated[Condition, Tag("condition")],
    Discriminator(_kind),
]
for _model in (And, Or, Not):
    _model.model_rebuild()


_MODELS: dict[str, type[_Strict]] = {"and": And, "or": Or, "not": Not, "condition": Condition}


def _small(value: Any) -> Any:
    """Refuse a filter that is too large or has unknown names before its parts are validated."""
    conditions = 0
    left = [(value, 1)]
    while left:
        node, depth = left.pop()
        if depth > MAX_DEPTH:
            raise ValueError(f"nested deeper than {MAX_DEPTH} levels")
        kind = _kind(node)
        if isinstance(node, dict):
            if kind != "condition" and len(node) > 1:
                raise ValueError(
                    f'{kind} needs an object of its own; join several conditions by {{"and": […]}}'
                )
            known = field_names(_MODELS[kind])
            known += _COMBINING if kind == "condition" else ()
            if message := unknown_name(node, known):
                guessed = kind != "condition" or message.endswith("?")
                raise ValueError(message if guessed else message + _EXAMPLE)
        parts = node[kind] if kind != "condition" else []
        below = parts if isinstance(parts, list) else [parts]
        conditions += not below
        if conditions + len(left) + len(below) > MAX_CONDITIONS:
            raise ValueError(f"more than {MAX_CONDITIONS} conditions")
        left += [(part, depth + 1) for part in below]
    return value


Filter = Annotated[Node, BeforeValidator(_small)]


def compile_filter(given: Node, fields: Mapping[str, FieldType], negated: bool = False) -> Where:
    """A LanceDB condition on the columns of an index.

    Args:
        given: the client's filter.
        fields: metadata fields that the index declares.
        negated: whether it must not hold; a document without a tested field passes neither way.

    Raises:
        InvalidError: a field is not declared, or a value has another type.
    """
    match given:
        case And(every=parts):
            return _join([compile_filter(part, fields, negated) for part in parts], negated)
        case Or(some=parts):
            return _join([compile_filter(part, fields, negated) for part in parts], not negated)
        case Not(negated=part):
            return compile_filter(part, fields, not negated)
    return _join(_tests(given, fields, negated), negated)


def live(where: Where | None) -> Where:
    """The condition that a document passes a filter and is not deleted."""
    from service.index.documents import LIVE

    return both(where, Where(sql.LIVE, LIVE))


def identified(ids: Sequence[str]) -> Where:
    """The condition that a document has one of some ids."""
    from service.index.documents import named

    return Where(sql.among("id", ids), named(ids))


def both(one: Where | None, other: Where) -> Where:
    """The condition that two conditions hold; None always holds."""
    return other if one is None else _join([one, other], either=False)


# Negation moves down to the tests, and a negated "in" also requires the field. LanceDB's optimizer
# merges lists of one field as if the field always existed, so NOT (a IN x AND a IN y) passed every
# document without it.
_OPPOSITE = {"eq": "ne", "ne": "eq", "gt": "lte", "lte": "gt", "gte": "lt", "lt": "gte"}
_SIGNS: dict[str, Sign] = {
    "eq": "=", "ne": "<>", "gt": ">", "gte": ">=", "lt": "<", "lte": "<="
}  # fmt: skip


def _join(parts: Sequence[Where], either: bool) -> Where:
    if len(parts) == 1:
        return parts[0]
    text = (sql.some if either else sql.every)(*(part.sql for part in parts))
    expressions = [part.expression for part in parts if part.expression is not None]
    return Where(text, _halved(expressions, either) if len(expressions) == len(parts) else None)


def _halved(parts: Sequence[Expr], either: bool) -> Expr:
    """The expressions as a balanced tree: LanceDB limits its depth."""
    if len(parts) == 1:
        return parts[0]
    middle = len(parts) // 2
    one, other = _halved(parts[:middle], either), _halved(parts[middle:], either)
    return one | other if either else one & other


def _tests(given: Condition, fields: Mapping[str, FieldType], negated: bool) -> list[Where]:
    from lancedb.expr import col

    field, kind = given.field, fields.get(given.field)
    if kind is None:
        raise InvalidError(f"filter: that field is not declared; {_known(fields)}", "filter")
    name = column_name(field)
    held = col(name)
    parts: list[Where] = []
    for test, value in given.tests().items():
        wrong = None
        if kind == "strings" and test not in ("contains", "in"):
            wrong = f"{field} is a list of strings: use contains or in"
        if kind != "strings" and test == "contains":
            wrong = f"contains: {field} is not a list of strings"
        if kind == "boolean" and test not in ("eq", "ne", "in"):
            wrong = f"{field} is a boolean, which has no order"
        if wrong is not None:
            raise InvalidError(f"filter: {wrong}", "filter")
        if test not in ("contains", "in"):
            sign = _OPPOSITE[test] if negated else test
            known = _held(field, kind, value)
            # the operators are names of Expr's methods
            expression = getattr(held, sign)(_literal(known))
            parts.append(Where(sql.compare(name, _SIGNS[sign], known), expression))
            continue
        values = value if test == "in" else [value]
        if kind == "strings":
            text = sql.overlaps(name, _held(field, kind, values))
            among = None
        else:
            values = [_held(field, kind, one) for one in values]
            text, among = sql.among(name, values), held.isin(map(_literal, values))
        if negated:
            text = sql.every(sql.negated(text), sql.given(name))
            # a column equals itself exactly if it has a value
            among = None if among is None else ~among & held.eq(held)
        parts.append(Where(text, among))
    return parts


_TESTS: dict[FieldType, str] = {
    "boolean": '"eq": true',
    "date": '"gte": "2020-05-01"',
    "integer": '"gte": 2020',
    "number": '"lt": 0.5',
    "string": '"eq": "a value"',
    "strings": '"contains": "a value"',
}
"""Of each type, a test that an error can show."""


def _known(fields: Mapping[str, FieldType]) -> str:
    if not fields:
        return "this index has none: fields are declared when an index is created"
    first = min(fields)
    example = f'{{"field": "{first}", {_TESTS[fields[first]]}}}'
    return f"this index has: {', '.join(sorted(fields))}. An example: {example}"


def _held(field: str, kind: FieldType, value: Any) -> Any:
    """The value as the column has it."""
    if not fits(kind, value):
        raise InvalidError(f"filter: {field} is {declared(kind)}", "filter")
    return column(kind, value)


def _literal(held: sql.Value) -> Expr:
    from lancedb.expr import lit

    # a query reads a minus and a number, and 2**63 is no 64-bit integer
    least = isinstance(held, int) and held == INT64.start
    return lit(str(held)).cast("int64") if least else lit(held)


async def filtered(
    index: Index, search: Callable[[int], Awaitable[pa.Table]], where: Where
) -> pa.Table:
    """A search of a vector index with a filter.

    The nearest parts of the index hold few of the rows that pass a narrow filter, so a second
    search reads more parts. How many are needed is counted during the first.

    Args:
        search: with a number of parts.
    """
    counted = index.table.count_rows(where.sql)
    found, passing = await asyncio.gather(search(FILTERED_PARTS), counted)
    wanted = await index.table.count_rows() * _PASSING // (_PART_ROWS * max(passing, 1))
    return await search(wanted) if wanted > FILTERED_PARTS else found


# values of a field that are counted, and the sum of their characters
_VALUES = 10_000
_CHARACTERS = 4_000_000
_KINDS = ("string", "strings", "integer", "boolean")

FacetValue = str | int | bool


@dataclass(slots=True)
class Facet:
    """The values of one field.

    Attributes:
        counts: documents by value.
        others: sum of the documents of each value that is not counted separately.
        characters: of all counted values.
    """

    counts: Counter[FacetValue] = field(default_factory=Counter)
    others: int = 0
    characters: int = 0

    def add(self, column: pa.Array) -> None:
        """Count the values of further documents."""
        if pa.types.is_list(column.type):
            column = column.flatten()
        for one in column.drop_null().value_counts().to_pylist():
            value, number = one["values"], one["counts"]
            if value not in self.counts:
                length = len(value) if isinstance(value, str) else 1
                if len(self.counts) >= _VALUES or self.characters + length > _CHARACTERS:
                    self.others += number
                    continue
                self.characters += length
            self.counts[value] += number

    def most(self, number: int) -> list[tuple[FacetValue, int]]:
        """The most frequent values with their counts."""
        return sorted(self.counts.items(), key=lambda item: (-item[1], item[0]))[:number]


def check(names: Sequence[str], fields: Mapping[str, FieldType]) -> None:
    """Raise InvalidError if a field is not declared, or has a type without facets."""
    known = sorted(name for name, kind in fields.items() if kind in _KINDS)
    if not set(names) <= set(known):
        raise InvalidError(
            "facets: give declared fields of the types string, strings, integer and boolean; "
            f"this index has: {', '.join(known) or 'none'}",
            "facets",
        )


async def count(index: Index, names: Sequence[str], where: Where | None) -> dict[str, Facet]:
    """The values of fields by name, over all documents that pass a filter.

    Args:
        names: that ``check`` accepted.
        where: the filter; None counts all documents.
    """
    found = {name: Facet() for name in names}
    query = (
        index.table.query().where(live(where).form).select([column_name(name) for name in found])
    )
    async for batch in await query.to_batches():
        for name, facet in found.items():
            facet.add(batch[column_name(name)])
    return found
