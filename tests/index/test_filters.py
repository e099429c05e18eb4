"""Compares the filter language with a plain interpreter, over rows in a real table."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from service.errors import InvalidError
from service.index.indexes import connect
from service.index.query.filters import Filter, compile_filter
from service.index.rows.fields import FieldType

FIELDS: dict[str, FieldType] = {
    "year": "integer",
    "status": "string",
    "weight": "number",
    "draft": "boolean",
}
NASTY = [
    "it's",
    "a' OR '1'='1",
    "'; DROP TABLE documents; --",
    'quo"ted',
    "back\\slash",
    "`tick`",
    "%",
    "_",
    "",
    "NULL",
    "é😀",
    "a\x00b",
    "line\nbreak",
    "$1",
    "{x}",
]
ROWS: list[dict[str, Any]] = [
    {
        "year": None if i % 7 == 0 else 2000 + i % 5,
        "status": NASTY[i % len(NASTY)] if i % 4 else None,
        "weight": None if i % 5 == 0 else i / 4,
        "draft": None if i % 6 == 0 else i % 2 == 0,
    }
    for i in range(60)
]
adapter: TypeAdapter[Any] = TypeAdapter(Filter)


class Table:
    """The rows in LanceDB, and an event loop for queries."""

    def __init__(self, folder: Path) -> None:
        self._loop = asyncio.new_event_loop()
        columns: dict[str, Any] = {f"metadata_{k}": [r[k] for r in ROWS] for k in FIELDS}
        rows = pa.table({"row": list(range(len(ROWS)))} | columns)

        async def create() -> Any:
            return await (await connect(str(folder))).create_table("rows", rows)

        self._table = self._loop.run_until_complete(create())

    def passing(self, body: Any) -> set[int]:
        """Numbers of the rows that pass a filter."""
        where = compile_filter(adapter.validate_python(body), FIELDS)

        async def ask() -> list[int]:
            found = await self._table.query().where(where).select(["row"]).to_arrow()
            return list(found["row"].to_pylist())

        return set(self._loop.run_until_complete(ask()))

    def close(self) -> None:
        """End the loop."""
        self._loop.close()


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One table for all tests."""
    held = Table(tmp_path_factory.mktemp("filters"))
    yield held
    held.close()


def verdict(body: Any, row: dict[str, Any]) -> bool | None:
    """True, False, or None for unknown (SQL's three values)."""
    if "not" in body:
        inner = verdict(body["not"], row)
        return None if inner is None else not inner
    for word, decisive in (("and", False), ("or", True)):
        if word in body:
            parts = [verdict(part, row) for part in body[word]]
            if decisive in parts:
                return decisive
            return None if None in parts else not decisive
    value = row[body["field"]]
    if value is None:
        return None
    tests = {
        "eq": lambda x: value == x,
        "ne": lambda x: value != x,
        "gt": lambda x: value > x,
        "gte": lambda x: value >= x,
        "lt": lambda x: value < x,
        "lte": lambda x: value <= x,
        "in": lambda x: value in x,
    }
    return all(tests[name](wanted) for name, wanted in body.items() if name != "field")


def condition(field: str, values: st.SearchStrategy[Any], order: bool = True) -> Any:
    names = ["eq", "ne", *(["gt", "gte", "lt", "lte"] if order else [])]
    one = st.dictionaries(st.sampled_from(names), values, min_size=1, max_size=2)
    among = st.lists(values, min_size=1, max_size=4).map(lambda v: {"in": v})
    return st.one_of(one, among).map(lambda tests: {"field": field} | tests)


def depth(body: Any) -> int:
    parts = body.get("and") or body.get("or") or [body["not"]] if "field" not in body else []
    return 1 + max((depth(part) for part in parts), default=0)


conditions = st.one_of(
    condition("year", st.integers(1999, 2006)),
    condition("status", st.one_of(st.sampled_from(NASTY), st.text(max_size=8))),
    condition("weight", st.one_of(st.floats(-1, 16), st.integers(0, 15))),
    condition("draft", st.booleans(), order=False),
)
filters = st.recursive(
    conditions,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: {"and": parts}),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: {"or": parts}),
        inner.map(lambda part: {"not": part}),
    ),
    max_leaves=6,
).filter(lambda body: depth(body) <= 8)


@settings(max_examples=150, deadline=None)
@given(body=filters)
def test_a_filter_passes_the_same_rows_as_the_interpreter(table: Table, body: Any) -> None:
    assert table.passing(body) == {i for i, row in enumerate(ROWS) if verdict(body, row) is True}


@pytest.mark.parametrize("text", NASTY)
def test_no_text_breaks_out_of_its_literal(table: Table, text: str) -> None:
    expected = {i for i, row in enumerate(ROWS) if row["status"] == text}
    assert table.passing({"field": "status", "eq": text}) == expected
    assert table.passing({"field": "status", "in": [text, "x"]}) == expected
    assert expected or text == NASTY[0]


@pytest.mark.parametrize(
    "body",
    [
        {},
        [],
        "year = 2000",
        {"field": "year"},
        {"field": "year", "eq": None},
        {"field": "year", "like": "x"},
        {"field": "year", "in": []},
        {"field": "year", "in": 2000},
        {"field": "year", "eq": float("nan")},
        {"field": "year", "eq": float("inf")},
        {"field": "year", "eq": [2000]},
        {"and": []},
        {"and": {"field": "year", "eq": 1}},
        {"or": [{"field": "year", "eq": 1}], "and": [{"field": "year", "eq": 1}]},
        {"not": []},
        {"field": "year", "in": [1] * 1001},
    ],
)
def test_malformed_filters(body: Any) -> None:
    with pytest.raises(ValidationError):
        adapter.validate_python(body)


@pytest.mark.parametrize(
    ("body", "hint"),
    [
        ({"field": "secret", "eq": 1}, "draft, status, weight, year"),
        ({"field": "metadata_year", "eq": 1}, "not declared"),
        ({"field": "year` = 1 OR `x", "eq": 1}, "not declared"),
        ({"field": "year", "eq": "2000"}, "declared as integer"),
        ({"field": "year", "eq": 2000.5}, "declared as integer"),
        ({"field": "year", "eq": 2**63}, "declared as integer"),
        ({"field": "year", "eq": True}, "declared as integer"),
        ({"field": "status", "in": ["a", 1]}, "declared as string"),
        ({"field": "draft", "gt": False}, "no order"),
        ({"and": [{"field": "year", "eq": 1}] * 64}, None),
    ],
)
def test_filters_that_contradict_the_fields(body: Any, hint: str | None) -> None:
    given = adapter.validate_python(body)
    if hint is None:
        compile_filter(given, FIELDS)
        return
    with pytest.raises(InvalidError, match=hint):
        compile_filter(given, FIELDS)


def test_filters_nested_too_deeply() -> None:
    body: Any = {"field": "year", "eq": 1}
    for _ in range(9):
        body = {"not": body}
    with pytest.raises(ValidationError, match="nested"):
        adapter.validate_python(body)


@pytest.mark.parametrize(
    "body",
    [
        {"or": [{"and": [{"field": "year", "eq": 1}] * 40}] * 2},
        {"and": [{"and": [{"field": "year", "eq": 1}] * 64}] * 64},
        {"and": [0] * 100_000},
    ],
)
def test_filters_of_too_many_conditions_give_one_error(body: Any) -> None:
    with pytest.raises(ValidationError, match="more than 64 conditions") as refused:
        adapter.validate_python(body)
    assert refused.value.error_count() == 1


def test_validation_of_a_list_stops_at_its_first_error() -> None:
    with pytest.raises(ValidationError) as refused:
        adapter.validate_python({"field": "year", "in": [[]] * 100_000})
    # one for each type that a value may have
    assert refused.value.error_count() == 4
