"""A text of a client stays a text, whatever quotes, marks and signs it has beside each other."""

from __future__ import annotations

import ast
import asyncio
import random
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.bulk.__main__ import main as command
from service.index import sql
from service.index.documents import named
from service.index.indexes import connect
from service.index.rows.fields import valid_id
from service.index.rows.keyed import KeyedTable
from tests.conftest import NIGHTLY, ROOT, Server, examples
from tests.index.conftest import call, place, upsert
from tests.index.exporting import read
from tests.storage import placed

PIECES = ["'", "''", "\\", "%", "_", "--", "/*", "*/", "{", "}", '"', "`", ";", ")", "\n", "\x00"]
TEXT = st.lists(st.sampled_from([*PIECES, "a", "b", "é", "\x7f"]), min_size=1, max_size=6).map(
    "".join
)
TEXTS = st.lists(TEXT, min_size=60, max_size=110, unique=True)
FIELDS = {"status": "string", "tags": "strings", "number": "integer"}
SQL_WORDS = re.compile(r"\bAND\b|\bOR\b|\bIN \(|IS (NOT )?NULL|array_|[<>=]=? '")
TAKES_A_CONDITION = {"where", "count_rows", "delete", "change", "when_matched_update_all"}


@pytest.fixture(scope="module")
def server(light_server: Server) -> Server:
    return light_server


@pytest.fixture(scope="module")
def held(server: Server) -> Iterator[str]:
    """One index; each example leaves it empty."""
    name = f"t-{uuid.uuid4().hex[:12]}"
    call(server, "PUT", f"/indexes/{name}", {"fields": FIELDS}, status=201)
    yield name
    httpx.delete(f"{server.url}/indexes/{name}", timeout=90)


def passing(server: Server, index: str, test: Any, mode: str = "cosine") -> set[int]:
    """Numbers of the documents that pass a filter, by a search; a count must agree."""
    body = {"index": index, "text": "word", "top_k": 200, "filter": test, "mode": mode}
    found = {hit["metadata"]["number"] for hit in call(server, "POST", "/similar", body)}
    path = f"/indexes/{index}/documents/delete"
    assert call(server, "POST", path, {"filter": test, "dry_run": True})["deleted"] == len(found)
    return found


@examples(6)
@given(TEXTS)
def test_each_text_is_found_by_its_own_value_only(
    server: Server, held: str, texts: list[str]
) -> None:
    names = [text if valid_id(text) else f"n{number}" for number, text in enumerate(texts)]
    # what a failed example left
    left = {"filter": {"field": "number", "gte": 0}}
    call(server, "POST", f"/indexes/{held}/documents/delete", left)
    cited = dict(zip(names, [*names[1:], names[0]], strict=True))
    upsert(
        server,
        held,
        *(
            {
                "id": name,
                "text": "word",
                "title": text,
                "metadata": {"status": text, "tags": [text, "all"], "number": number},
                "links": [cited[name]],
            }
            for number, (name, text) in enumerate(zip(names, texts, strict=True))
        ),
    )
    everything = set(range(len(texts)))
    # two texts differ in a bit of their numbers, so one that counts as another is in a wrong set
    for bit in range(len(texts).bit_length()):
        chosen = {number for number in everything if number >> bit & 1}
        some = [texts[number] for number in sorted(chosen)]
        if some:
            mode = ("cosine", "words")[bit % 2]
            among = {"field": "status", "in": some}
            tagged = {"field": "tags", "in": some}
            assert passing(server, held, among, mode) == chosen
            assert passing(server, held, tagged, mode) == chosen
            assert passing(server, held, {"not": tagged}) == everything - chosen
            assert passing(server, held, {"not": among}) == everything - chosen
            both = {"or": [{"and": [among, tagged]}, {"field": "status", "eq": some[0]}]}
            assert passing(server, held, both) == chosen
            asked = {"ids": [names[number] for number in sorted(chosen)], "text": False}
            got = call(server, "POST", f"/indexes/{held}/documents/get", asked)
            assert [one["title"] for one in got["documents"]] == some
    for number in (0, len(texts) // 2, len(texts) - 1):
        name = names[number]
        assert passing(server, held, {"field": "status", "eq": texts[number]}) == {number}
        assert passing(server, held, {"field": "tags", "contains": texts[number]}) == {number}
        links = httpx.get(place(server, held, name, "/links"), timeout=90).json()["links"]
        citing = names[number - 1]
        assert {(one["direction"], one["id"]) for one in links} == {
            ("cites", cited[name]),
            ("cited_by", citing),
        }
        coupled = {"index": held, "id": name, "top_k": 5, "mode": "coupled"}
        call(server, "POST", "/similar", coupled)
        written = httpx.patch(place(server, held, name), json={"title": "new"}, timeout=90)
        assert written.status_code == 200, written.text
        tag = {"if-match": written.headers["etag"]}
        again = httpx.patch(
            place(server, held, name), json={"title": "newer"}, headers=tag, timeout=90
        )
        assert again.status_code == 200, again.text
        late = httpx.delete(place(server, held, name), headers=tag, timeout=90)
        assert late.status_code == 412, late.text
        one = {"id": name, "text": "word", "metadata": {"number": number, "tags": [texts[number]]}}
        one["if_version"] = again.json()["version"]
        answer = call(server, "POST", f"/indexes/{held}/documents", {"documents": [one]})
        tag = {"if-match": f'"{answer["versions"][0]}"'}
        gone = httpx.delete(place(server, held, name), headers=tag, timeout=90)
        assert gone.status_code == 204, gone.text
        everything.discard(number)
        assert passing(server, held, {"field": "number", "gte": 0}) == everything
    # by their ids, then by a filter
    ids = [names[number] for number in sorted(everything)]
    path = f"/indexes/{held}/documents/delete"
    half = len(ids) // 2
    assert call(server, "POST", path, {"ids": ids[:half]})["deleted"] == half
    rest = {"field": "tags", "in": [texts[names.index(name)] for name in ids[half:]]}
    assert call(server, "POST", path, {"filter": rest})["deleted"] == len(ids) - half
    assert passing(server, held, {"field": "number", "gte": 0}) == set()


@pytest.mark.parametrize("seed", range(1000 if NIGHTLY else 10))
def test_a_thousand_texts_differ_in_each_form(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    pieces = [*PIECES, "a", "b"]
    drawn = {"".join(draw.choices(pieces, k=draw.randint(1, 6))) for _ in range(1100)}
    texts = sorted(drawn)[:1000]

    async def scenario() -> None:
        lists = [[text] for text in texts]
        rows = pa.table({"row": range(len(texts)), "id": texts, "tags": lists})
        table = await (await connect(str(tmp_path))).create_table("rows", rows)
        for bit in range(len(texts).bit_length()):
            chosen = {place for place in range(len(texts)) if place >> bit & 1}
            some = [texts[place] for place in chosen]
            for form in (named(some), sql.among("id", some), sql.overlaps("tags", some)):
                found = await table.query().where(form).select(["row"]).to_arrow()
                assert set(found["row"].to_pylist()) == chosen
            assert await table.count_rows(sql.among("id", some)) == len(chosen)

    asyncio.run(scenario())


def test_the_control_is_confused(tmp_path: Path) -> None:
    """LanceDB's own text of a condition finds another row."""

    async def scenario() -> None:
        table = await (await connect(str(tmp_path))).create_table(
            "rows", pa.table({"id": ["a'b", "a''b"]})
        )
        for where, found in (
            (named(["a''b"]).to_sql(), "a'b"),
            (sql.among("id", ["a''b"]), "a''b"),
        ):
            rows = await table.query().where(where).to_arrow()
            assert rows["id"].to_pylist() == [found]

    asyncio.run(scenario())


def test_rows_with_a_key_are_read_changed_and_deleted_by_their_own_key_only(
    tmp_path: Path,
) -> None:
    """Classifiers, labels, jobs, aliases and leases are such rows."""
    draw = random.Random(7)
    drawn = {"".join(draw.choices([*PIECES, "a"], k=draw.randint(1, 4))) for _ in range(24)}
    model = dict.fromkeys(sorted(drawn), "")

    async def scenario() -> None:
        columns = {"key": pa.string(), "value": pa.string()}
        table = KeyedTable(await connect(str(tmp_path)), "rows", **columns)
        await table.put(*({"key": key, "value": ""} for key in model))
        for key in list(model):
            assert await table.change(sql.compare("key", "=", key), value=key)
            assert await table.get(key) == {"key": key, "value": key}
            model[key] = key
            held = sql.compare("target.value", "=", key)
            await table.put({"key": key, "value": "new"}, replace=held)
            model[key] = "new"
            gone = [key] if len(model) % 2 else [key, f"{key} of no row"]
            await table.delete(table.of(*gone))
            del model[key]
            rows = await table.rows()
            assert {row["key"]: row["value"] for row in rows} == model

    asyncio.run(scenario())


@examples(2)
@given(TEXTS)
def test_labels_and_exports_keep_each_text(
    server: Server,
    held: str,
    light: tuple[str, ...],
    tmp_path_factory: pytest.TempPathFactory,
    texts: list[str],
) -> None:
    labels = [text for text in texts if text.strip() == text][:8]
    names = [text for text in texts if valid_id(text)]
    upsert(server, held, *({"id": name, "text": "word", "title": name} for name in names))
    # each label has two documents
    given = [{"id": name, "labels": [labels[place // 2]]} for place, name in enumerate(names[:16])]
    wanted = {one["id"]: one["labels"] for one in given}
    path = f"/classifiers/t-{uuid.uuid4().hex[:12]}/labels"
    call(server, "POST", path, {"index": held, "documents": given})
    found = call(server, "GET", path, params={"limit": 1000})["documents"]
    assert {one["id"]: one["labels"] for one in found} == wanted
    call(server, "POST", path, {"index": held, "documents": [{"id": names[0], "labels": None}]})
    found = call(server, "GET", path, params={"limit": 1000})["documents"]
    assert {one["id"] for one in found} == set(names[1:16])
    folder = tmp_path_factory.mktemp("export") / "out"
    root = placed(server.log.with_name("index"))
    assert command(["export", held, str(folder), "--index-path", root, *light]) == 0
    rows = read(folder).to_pylist()
    assert {row["id"]: row["title"] for row in rows} == {name: name for name in names}
    assert call(server, "POST", f"/indexes/{held}/documents/delete", {"ids": names})


@given(TEXT)
def test_a_literal_doubles_apostrophes_and_changes_nothing_else(text: str) -> None:
    made = sql.literal(text)
    assert (made[0], made[-1]) == ("'", "'")
    assert made[1:-1].split("''") == text.split("'")


def test_an_equal_filter_of_many_tests_is_served(server: Server, held: str) -> None:
    upsert(server, held, {"id": "a", "text": "word", "metadata": {"number": 1, "tags": ["x"]}})
    for kind in ("and", "or"):
        for test in ({"field": "number", "lte": 1}, {"field": "tags", "contains": "x"}):
            assert passing(server, held, {kind: [test] * 64}) == {1}
            assert passing(server, held, {"not": {kind: [test] * 64}}) == set()
    call(server, "POST", f"/indexes/{held}/documents/delete", {"ids": ["a"]})


def made(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Places where a module makes SQL of its own, with the reason."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr == "to_sql":
            yield node.lineno, "to_sql quotes wrongly"
        if isinstance(node, ast.JoinedStr):
            words = "".join(str(one.value) for one in node.values if isinstance(one, ast.Constant))
            if SQL_WORDS.search(words):
                yield node.lineno, "an f-string with words of SQL"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            given = [*node.args, *(one.value for one in node.keywords if one.arg == "where")]
            if node.func.attr in TAKES_A_CONDITION and any(
                isinstance(one, ast.JoinedStr | ast.BinOp)
                and not (isinstance(one, ast.BinOp) and isinstance(one.op, ast.BitAnd | ast.BitOr))
                and not (isinstance(node.func.value, ast.Name) and node.func.value.id == "np")
                for one in given
            ):
                yield node.lineno, "a condition that is joined of texts"
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "Sql"
            and not isinstance(node.args[0], ast.Constant)
        ):
            yield node.lineno, "a condition that is not a constant"


def test_one_module_makes_sql() -> None:
    found = {}
    for path in sorted([*(ROOT / "service").rglob("*.py"), *(ROOT / "features").rglob("*.py")]):
        if path != ROOT / "service" / "index" / "sql.py":
            faults = [*made(ast.parse(path.read_text(encoding="utf-8")))]
            if faults:
                found[str(path.relative_to(ROOT))] = faults
    assert not found


@pytest.mark.parametrize(
    "code",
    [
        "query.where(col('a').eq(lit(b)).to_sql())",
        "table.count_rows(f'id = {name}')",
        "self.table.delete('id = ' + name)",
        "self.table.delete('id = %s' % name)",
        'where = f"deleted = false AND id = {name}"',
        "where = Sql(name)",
    ],
)
def test_the_reader_of_code_sees_sql(code: str) -> None:
    assert [*made(ast.parse(code))]
