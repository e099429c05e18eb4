"""Searches in which more documents are equal than an answer holds."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from service.index.documents import Index
from service.index.indexes import Indexes, Model
from service.index.maintenance import optimize
from service.index.query import passages, search
from service.index.query.passages import by_sets, by_words
from service.index.query.reading import Query
from service.index.rows.records import Encoding, Record
from service.index.storage.database import connect

DOCUMENTS = 2400
VECTOR = np.eye(8, dtype=np.float32)[0]
WORDS = {"best": "rare rare rare", "equal": "rare filler other", "none": "filler filler other"}
QUERY = Query(VECTOR, "rare", None)


def kind(number: int) -> str:
    # in no order of the table
    place = number * 7919 % DOCUMENTS
    return "best" if place % 50 == 0 else "equal" if place % 2 else "none"


def record(number: int) -> Record:
    text = f"shared phrase {WORDS[kind(number)]}"
    return Record(f"d{number:04}", text, None, {}, [], Encoding(VECTOR, VECTOR[None], [len(text)]))


async def opened(folder: Path) -> Indexes:
    databases = [await connect(f"{folder}/{part}") for part in ("indexes", "leases")]
    return Indexes(databases[0], databases[1], Model("model", "a" * 64, len(VECTOR)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index with 1,200 documents that a search for one word cannot tell apart."""
    made = tmp_path_factory.mktemp("ties")

    async def fill() -> None:
        indexes = await opened(made)
        await indexes.create("x", {})
        index = await indexes.open("x")
        for start in range(0, DOCUMENTS, DOCUMENTS // 3):
            await index.put([record(start + number) for number in range(DOCUMENTS // 3)])
        await optimize(index.table)

    asyncio.run(fill())
    return made


async def replicas(folder: Path) -> list[Index]:
    return [await (await opened(folder)).open("x", still=True) for _ in range(2)]


def expected() -> list[str]:
    of = {name: [n for n in range(DOCUMENTS) if kind(n) == name] for name in WORDS}
    return [f"d{number:04}" for number in [*of["best"], *of["equal"]]]


@pytest.mark.parametrize("run", [search.words, search.hybrid])
def test_pages_of_equal_documents_miss_none_and_repeat_none(folder: Path, run: object) -> None:
    async def pages(size: int) -> list[str]:
        indexes = await replicas(folder)
        found: list[str] = []
        for page, offset in enumerate(range(0, 1000, size)):
            query = replace(QUERY, offset=offset)
            hits = await run(indexes[page % 2], query, offset + size, None)  # type: ignore[operator]
            found += [hit.id for hit in hits]
        return found

    for size in (250, 500):
        assert asyncio.run(pages(size)) == expected()[:1000]


def test_passages_choose_the_same_ones_of_equal_documents(folder: Path) -> None:
    async def chosen() -> None:
        form = passages.Form(20, 1, 100)
        answers: set[tuple[str, ...]] = set()
        for index in await replicas(folder):
            for _ in range(5):
                rows = await asyncio.gather(
                    by_words(index, "rare", 150, None), by_sets(index, ["rare"], 1, 150, None)
                )
                for places in rows:
                    taken = index.table.take_row_ids(places).with_row_id().select(["id"])
                    found = (await taken.to_arrow()).to_pylist()
                    names = {row["_rowid"]: row["id"] for row in found}
                    assert [names[place] for place in places] == expected()[:151]
                hits = await passages.search(index, QUERY, "words", form, None)
                answers.add(tuple(hit.id for hit in hits))
        assert len(answers) == 1

    asyncio.run(chosen())
