"""Compares the filter language with a plain interpreter, over rows in a real table."""

from __future__ import annotations

import asyncio
import json
import math
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lancedb.index import BTree, LabelList
from pydantic import TypeAdapter, ValidationError

from service.errors import InvalidError
from service.index.indexes import connect
from service.index.query.filters import Filter, compile_filter, live
from service.index.rows import schema
from service.index.rows.fields import FieldType, column, column_name, instant
from tests.conftest import NIGHTLY

FIELDS: dict[str, FieldType] = {
    "year": "integer",
    "status": "string",
    "weight": "number",
    "draft": "boolean",
    "day": "date",
    "tags": "strings",
    # SQL would take it for another field
    "Year": "integer",
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
DAYS = [
    "2020-01-01",
    "2020",
    "2020-02",
    "2020-01-01T00:30:00+02:00",
    "2019-12-31T22:30:00Z",
    "2021-05-17T08:00",
]
ROWS: list[dict[str, Any]] = [
    {
        "year": None if i % 7 == 0 else 2000 + i % 5,
        "Year": None if i % 3 == 0 else 2000 + i % 2,
        "status": NASTY[i % len(NASTY)] if i % 4 else None,
        "weight": None if i % 5 == 0 else i / 4,
        "draft": None if i % 6 == 0 else i % 2 == 0,
        "day": None if i % 8 == 0 else DAYS[i % len(DAYS)],
        "tags": None if i % 9 == 0 else [NASTY[(i + n) % len(NASTY)] for n in range(i % 3)],
    }
    for i in range(60)
]
adapter: TypeAdapter[Any] = TypeAdapter(Filter)


class Table:
    """The rows in LanceDB, and an event loop for queries."""

    def __init__(self, folder: Path) -> None:
        self._loop = asyncio.new_event_loop()
        made = schema.create("m", "r", 4, FIELDS)
        columns: dict[str, Any] = {
            (name := column_name(k)): pa.array(
                [column(kind, r[k]) for r in ROWS], made.field(name).type
            )
            for k, kind in FIELDS.items()
        }
        rows = pa.table({"row": list(range(len(ROWS)))} | columns)

        async def create() -> Any:
            table = await (await connect(str(folder))).create_table("rows", rows)
            # half of the lists are in an index, as in a table with new rows
            await table.create_index("metadata_tags", config=LabelList())
            await table.add(rows.set_column(0, "row", [[len(ROWS) + i for i in range(len(ROWS))]]))
            return table

        self._table = self._loop.run_until_complete(create())

    def passing(self, body: Any) -> set[int]:
        """Numbers of the rows that pass a filter."""
        where = compile_filter(adapter.validate_python(body), FIELDS)

        async def ask() -> list[int]:
            found = await self._table.query().where(where.form).select(["row"]).to_arrow()
            text = await self._table.query().where(where.sql).select(["row"]).to_arrow()
            assert sorted(text["row"].to_pylist()) == sorted(found["row"].to_pylist())
            return list(found["row"].to_pylist())

        found = set(self._loop.run_until_complete(ask()))
        indexed = {row for row in found if row < len(ROWS)}
        assert {row - len(ROWS) for row in found - indexed} == indexed
        return indexed

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
    if body["field"] == "tags":
        wanted = [{item} if name == "contains" else set(item) for name, item in body.items()]
        return all(some & set(value) for some in wanted[1:])
    if body["field"] == "day":
        value = instant(value)
        body = {
            name: item
            if name == "field"
            else [instant(one) for one in item]
            if name == "in"
            else instant(item)
            for name, item in body.items()
        }
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
    condition("Year", st.integers(1999, 2002)),
    condition("status", st.one_of(st.sampled_from(NASTY), st.text(max_size=8))),
    condition("weight", st.one_of(st.floats(-1, 16), st.integers(0, 15))),
    condition("draft", st.booleans(), order=False),
    condition("day", st.one_of(st.sampled_from(DAYS), st.datetimes().map(str))),
    st.sampled_from(NASTY).map(lambda text: {"field": "tags", "contains": text}),
    st.lists(st.one_of(st.sampled_from(NASTY), st.text(max_size=8)), min_size=1, max_size=4).map(
        lambda texts: {"field": "tags", "in": texts}
    ),
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


@settings(max_examples=5000 if NIGHTLY else 90, deadline=None)
@given(body=filters)
def test_a_filter_passes_the_same_rows_as_the_interpreter(table: Table, body: Any) -> None:
    assert table.passing(body) == {i for i, row in enumerate(ROWS) if verdict(body, row) is True}


@pytest.mark.parametrize("text", NASTY)
def test_no_text_breaks_out_of_its_literal(table: Table, text: str) -> None:
    expected = {i for i, row in enumerate(ROWS) if row["status"] == text}
    assert table.passing({"field": "status", "eq": text}) == expected
    assert table.passing({"field": "status", "in": [text, "x"]}) == expected
    assert expected or text == NASTY[0]
    tagged = {i for i, row in enumerate(ROWS) if text in (row["tags"] or [])}
    assert table.passing({"field": "tags", "contains": text}) == tagged != set()
    there = {i for i, row in enumerate(ROWS) if row["tags"] is not None}
    assert table.passing({"not": {"field": "tags", "in": [text]}}) == there - tagged


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
        {"field": "tags", "contains": ["a"]},
    ],
)
def test_malformed_filters(body: Any) -> None:
    with pytest.raises(ValidationError):
        adapter.validate_python(body)


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        ("x" * 4097, "a text of 4096 or fewer characters"),
        (math.inf, "a finite number"),
        (math.nan, "a finite number"),
        (10**400, "a finite number"),
    ],
)
@pytest.mark.parametrize("several", [False, True])
def test_a_value_beyond_its_limit_gets_the_limit(value: Any, hint: str, several: bool) -> None:
    test = {"in": ["a", value]} if several else {"eq": value}
    with pytest.raises(ValidationError) as raised:
        adapter.validate_python({"field": "status", **test})
    assert hint in raised.value.errors()[0]["msg"]


@pytest.mark.parametrize(
    ("body", "hint"),
    [
        ({"field": "secret", "eq": 1}, "Year, day, draft, status, tags, weight, year"),
        ({"field": "metadata_year", "eq": 1}, "not declared"),
        ({"field": "year` = 1 OR `x", "eq": 1}, "not declared"),
        ({"field": "year", "eq": "2000"}, "declared as integer"),
        ({"field": "year", "eq": 2000.5}, "declared as integer"),
        ({"field": "year", "eq": 2**63}, "declared as integer"),
        ({"field": "year", "eq": True}, "declared as integer"),
        ({"field": "status", "in": ["a", 1]}, "declared as string"),
        ({"field": "draft", "gt": False}, "no order"),
        ({"field": "tags", "eq": "a"}, "use contains or in"),
        ({"field": "tags", "in": ["a", 1]}, "declared as strings"),
        ({"field": "status", "contains": "a"}, "not a list of strings"),
        ({"field": "day", "gte": "2020-5"}, "declared as date"),
        ({"field": "day", "in": ["2020-01-01", "soon"]}, "declared as date"),
        ({"field": "day", "eq": 2020}, "declared as date"),
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


@pytest.mark.parametrize("kind", get_args(FieldType))
def test_an_unknown_field_is_answered_with_a_right_condition(kind: FieldType) -> None:
    given = adapter.validate_python({"field": "yaer", "eq": 1})
    with pytest.raises(InvalidError) as caught:
        compile_filter(given, {"held": kind})
    said = str(caught.value)
    shown = json.loads(said[said.index("{") :])
    assert shown["field"] == "held"
    compile_filter(adapter.validate_python(shown), {"held": kind})
    with pytest.raises(InvalidError, match="fields are declared when an index is created"):
        compile_filter(given, {})


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
    assert refused.value.error_count() == 1


LOWEST = -(2**63)


@pytest.mark.parametrize("indexed", [False, True])
@pytest.mark.parametrize(
    ("test", "passing"),
    [
        ({"eq": LOWEST}, {0}),
        ({"ne": LOWEST}, {1, 2}),
        ({"gt": LOWEST}, {1, 2}),
        ({"gte": LOWEST}, {0, 1, 2}),
        ({"lt": LOWEST}, set()),
        ({"lte": LOWEST}, {0}),
        ({"in": [LOWEST, 5]}, {0, 2}),
        ({"eq": LOWEST + 1}, {1}),
    ],
    ids=str,
)
def test_the_lowest_integer(
    tmp_path: Path, test: dict[str, Any], passing: set[int], indexed: bool
) -> None:
    where = compile_filter(adapter.validate_python({"field": "year"} | test), FIELDS)

    async def scenario() -> None:
        years = pa.array([LOWEST, LOWEST + 1, 5, None], pa.int64())
        rows = pa.table({"row": range(4), "metadata_year": years, "deleted": [False] * 4})
        table = await (await connect(str(tmp_path))).create_table("rows", rows)
        if indexed:
            await table.create_index("metadata_year", config=BTree())
        for form in (where, live(where)):
            found = await table.query().where(form.form).select(["row"]).to_arrow()
            assert set(found["row"].to_pylist()) == passing
            assert await table.count_rows(form.sql) == len(passing)

    asyncio.run(scenario())
