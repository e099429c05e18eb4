"""Damaged rows: never served, and named by the check.

LanceDB itself writes the damage, so the files are whole and only the checksums show it.
"""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from service.errors import DamagedError
from service.index import documents
from service.index.documents import Index, kept
from service.index.query import search
from service.index.query.reading import Query
from service.index.rows.checksums import Part, faults
from service.index.rows.versions import microseconds
from service.learning import examples as sources
from tests import forked
from tests.conftest import NIGHTLY, ROOT
from tests.integrity import stores

NAME = "x-3"
TEXT = stores.text_of(NAME)
LATER = "another text"

# a part, a column of it, and the column's new value in SQL
DAMAGES = [
    ("text", "text", f"'{LATER}'"),
    ("head", "title", "'another title'"),
    ("head", "metadata", "'{}'"),
    ("vector", "vector", str([0.35] * stores.DIMENSIONS)),
    ("windows", "window_ends", "[1, 2]"),
    ("links", "links", "['nobody']"),
    ("state", "updated", "updated + 4096"),
]


async def damaged(root: Path, column: str, value: str) -> Index:
    index = await (await stores.open_indexes(root)).open("x")
    await index.table.update(updates_sql={column: value}, where=f"id = '{NAME}'")
    return index


async def answers(index: Index, mode: str, limit: int) -> list[str]:
    query = Query(stores.vector("query"), "document x-3 words")
    run = {"cosine": search.cosine, "words": search.words, "hybrid": search.hybrid}[mode]
    return [hit.id for hit in await run(index, query, limit, None)]


@pytest.mark.parametrize(("part", "column", "value"), DAMAGES, ids=[d[1] for d in DAMAGES])
async def test_a_damaged_row_is_not_served_but_named(
    store: Path, tmp_path: Path, part: str, column: str, value: str
) -> None:
    root = stores.copy(store, tmp_path / "copy")

    sound = await (await stores.open_indexes(root)).open("x")
    for limit in (20, 50):
        assert NAME in await answers(sound, "cosine", limit)
    assert NAME in await kept(sound, {NAME: TEXT})
    index = await damaged(root, column, value)
    seen: list[int] = []
    index = Index(index.table, index.schema, index.identity, index.vocabulary, seen.append)
    assert await stores.wrong_answers(index, stores.names("x")) == []
    assert seen
    if part != "windows":
        with pytest.raises(DamagedError):
            await index.get(NAME)
    if part in ("vector", "head", "state"):
        for mode in ("cosine", "words", "hybrid"):
            # small limits read titles with the vectors, large ones do not
            for limit in (20, 50):
                assert NAME not in await answers(index, mode, limit)
    if part in ("vector", "windows", "text"):
        assert NAME not in await kept(index, {NAME: TEXT})
        assert NAME not in await kept(index, {NAME: LATER})
    if part == "windows":
        with pytest.raises(DamagedError):
            await documents.windows_of(index, NAME)
    if part in ("vector", "text"):
        with pytest.raises(DamagedError):
            await sources.documents(index, [NAME])

    report = await stores.checked(root, "x")
    assert [(f.document, f.part) for f in report.findings] == [(NAME, part)]
    await index.put([stores.record(NAME)])
    assert (await stores.checked(root, "x")).findings == []
    assert (await index.get(NAME)).text == TEXT
    assert (await documents.windows_of(index, NAME)).ends[-1] == len(TEXT)


@pytest.mark.parametrize("mode", ["cosine", "words"])
async def test_a_damaged_hit_leaves_its_place_to_the_next(
    store: Path, tmp_path: Path, mode: str
) -> None:
    root = stores.copy(store, tmp_path / "copy")

    order = await answers(await (await stores.open_indexes(root)).open("x"), mode, 19)
    assert NAME in order
    index = await damaged(root, "title", "'another title'")
    sound = [name for name in order if name != NAME]
    for limit in range(1, 19):
        assert await answers(index, mode, limit) == sound[:limit]


def test_every_bit_of_a_row_is_covered() -> None:
    """A control: an unchanged row has no faults, and a change of a part shows only in that part."""

    async def scenario(root: Path) -> None:
        index = await (await stores.open_indexes(root)).open("x")
        rows = await index.rows([stores.record("a"), stores.record("b")])
        assert faults(rows, *Part) == [(), ()]
        swapped = rows.set_column(0, rows.schema.field(0), rows["id"].take([1, 0]))
        assert faults(swapped, *Part) == [tuple(Part), tuple(Part)]
        place = rows.schema.get_field_index("vector")
        crossed = rows.set_column(place, rows.schema.field(place), rows["vector"].take([1, 0]))
        assert faults(crossed, *Part) == [(Part.VECTOR,), (Part.VECTOR,)]

    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        stores.run(stores.make(root))
        stores.run(scenario(root))


@pytest.mark.parametrize("column", ["id", "links"])
@pytest.mark.parametrize(("value", "named"), [("a''b", True), ("a\\'b", True), ("a'b\\", False)])
async def test_the_check_names_documents_that_former_versions_may_have_confused(
    store: Path, tmp_path: Path, column: str, value: str, named: bool
) -> None:
    root = stores.copy(store, tmp_path / "copy")

    index = await (await stores.open_indexes(root)).open("x")
    name = value if column == "id" else "plain"
    links = [value] if column == "links" else []
    await index.put([replace(stores.record(name), links=links)])
    report = await stores.checked(root, "x")
    assert report.findings == []
    assert [one.document for one in report.quoted] == ([name] if named else [])
    # what is deleted cannot be written again
    await index.tombstone({name: microseconds() + 1_000_000})
    assert (await stores.checked(root, "x")).quoted == []


async def test_a_row_of_a_version_without_checksums_is_served_and_counts_as_unverified(
    store: Path, tmp_path: Path
) -> None:
    root = stores.copy(store, tmp_path / "copy")

    index = await (await stores.open_indexes(root)).open("x")
    where = f"id = '{NAME}'"
    [row] = await index.table.query().where(where).select(["digest"]).to_list()
    await index.table.update({"digest": row["digest"][:32]}, where=where)
    assert (await index.get(NAME)).text == TEXT
    assert NAME in await answers(index, "cosine", 20)
    report = await stores.checked(root, "x")
    assert (report.unverified, report.findings) == (1, [])
    await index.put([stores.record(NAME)])
    assert (await stores.checked(root, "x")).unverified == 0


def flip(file: Path, draw: np.random.Generator) -> None:
    content = bytearray(file.read_bytes())
    bit = int(draw.integers(len(content) * 8))
    content[bit // 8] ^= 1 << bit % 8
    file.write_bytes(bytes(content))


def flipped(store: Path, root: Path, turn: int) -> None:
    """Make a new copy with one wrong bit in each of forty files."""
    stores.copy(store, root)
    draw = np.random.default_rng(turn)
    files = sorted(path for path in root.rglob("*") if path.is_file())
    for place in draw.permutation(len(files))[:40]:
        flip(files[place], draw)


def served(roots: list[Path]) -> list[str]:
    """Wrong answers of stores; LanceDB may end the process because of a wrong length."""
    wrong: list[str] = []
    while roots:
        ended = forked.run("tests.integrity.served", *map(str, roots), folder=ROOT)
        lines = ended.stdout.splitlines()
        assert ended.returncode in (0, -signal.SIGABRT), ended.stderr[-2000:]
        assert ended.returncode or len(lines) == len(roots)
        wrong += [one for line in lines for one in json.loads(line)]
        roots = roots[len(lines) + 1 :]
    return wrong


def test_flipped_bits_are_never_served(store: Path, tmp_path: Path) -> None:
    roots = [tmp_path / f"copy-{turn}" for turn in range(6 if NIGHTLY else 3)]
    for turn, root in enumerate(roots):
        flipped(store, root, turn)
    assert served(roots) == []


def test_the_check_sees_wrong_answers(store: Path, tmp_path: Path) -> None:
    """A control: without its checksums, a damaged row is served."""
    root = stores.copy(store, tmp_path / "copy")

    async def scenario() -> None:
        index = await (await stores.open_indexes(root)).open("x")
        values = {"text": LATER, "digest": "0" * 32}
        await index.table.update(values, where=f"id = '{NAME}'")

    stores.run(scenario())
    assert served([root]) == [f"get {NAME}", f"vector of {NAME}"]

    async def another_text() -> list[str]:
        index = await (await stores.open_indexes(root)).open("x")
        await index.put([stores.record(NAME, LATER)])
        return await stores.wrong_in_sound(index)

    wrong = {f"row {NAME}", f"vector of {NAME}", f"cosine {NAME}", f"windows of {NAME}"}
    assert {*stores.run(another_text())} == wrong | {"words finds 18 of 19"}
