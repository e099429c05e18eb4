"""Reads, searches, changes, checks and re-embeds the stores of former versions."""

from __future__ import annotations

import tarfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from service.bulk.check import check
from service.embedding.embedder import Document
from service.index import documents
from service.index.documents import kept
from service.index.indexes import Indexes, Model, connect
from service.index.query import search
from service.index.query.filters import Condition, compile_filter
from service.index.query.reading import Query
from service.index.reembed import Follower
from service.learning.heads import Heads
from tests.integrity import stores
from tests.integrity.stored import make

ARCHIVES = sorted(Path(make.__file__).parent.glob("*.tar.gz"))
# rows of versions without checksums, tombstones included
UNVERIFIED = {"0.1-plain": 8, "0.1-checksums": 0}


async def opened(root: Path, revision: str = make.REVISION) -> Indexes:
    databases = [await connect(f"{root}/{part}") for part in ("indexes", "leases")]
    return Indexes(databases[0], databases[1], Model("model", revision, make.DIMENSIONS))


async def embed(texts: Sequence[str]) -> list[Document]:
    return [stores.embedded(text) for text in texts]


@pytest.fixture(params=ARCHIVES, ids=lambda path: path.name.removesuffix(".tar.gz"))
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path]:
    with tarfile.open(request.param) as archive:
        archive.extractall(tmp_path / "store", filter="data")
    return request.param.name.removesuffix(".tar.gz"), tmp_path / "store"


def test_an_archive_of_each_format_exists() -> None:
    assert {path.name.removesuffix(".tar.gz") for path in ARCHIVES} == UNVERIFIED.keys()


async def test_a_former_store_is_read_searched_and_written(stored: tuple[str, Path]) -> None:
    name, root = stored

    indexes = await opened(root)
    index = await indexes.open("papers")
    assert await index.count() == 7
    for number in range(7):
        given = make.record(number)
        held = await index.get(given.id)
        assert (held.text, held.title, held.links) == (given.text, given.title, given.links)
        assert np.array_equal(held.vector, given.encoding.vector)
        windows = await documents.windows_of(index, given.id)
        assert np.array_equal(windows.vectors, given.encoding.windows.astype("<f2"))
    query = Query(make.vector(make.record(3).text), make.record(3).text)
    [first, *_] = await search.cosine(index, query, 7, None)
    assert (first.id, first.title) == ("d3", "Title 3")
    assert {hit.id for hit in await search.words(index, query, 7, None)} >= {"d3"}
    drafts = Condition.model_validate({"field": "draft", "eq": True})
    where = compile_filter(drafts, index.identity.fields)
    held_ids = {hit.id for hit in await search.hybrid(index, query, 7, where)}
    assert held_ids == {"d0", "d2", "d4", "d6"}
    assert list(await kept(index, {"d1": make.record(1).text, "d2": "other"})) == ["d1"]

    heads = Heads(await connect(f"{root}/heads"), "classifiers", "classifier")
    head = await heads.get("kind")
    assert (head.labels, head.network.shape) == (["a", "b"], (make.DIMENSIONS, 2))
    assert (await heads.examples("kind")).inputs == ["one", "two"]

    report = await check(indexes, root, None)
    assert [str(finding) for finding in report.findings] == []
    assert report.unverified == UNVERIFIED[name]
    await index.put([make.record(1), make.record(9)])
    assert (await index.get("d9")).text == make.record(9).text
    report = await check(indexes, root, None)
    assert report.unverified == max(UNVERIFIED[name] - 1, 0)


async def test_damage_to_a_former_store_is_named(stored: tuple[str, Path]) -> None:
    _, root = stored

    index = await (await opened(root)).open("papers")
    await index.table.update({"text": "damaged"}, where="id = 'd4'")
    found = (await check(await opened(root), root, "papers")).findings
    assert [finding.document for finding in found] == ["d4"]


async def test_a_former_store_is_embedded_again_for_another_bundle(
    stored: tuple[str, Path],
) -> None:
    _, root = stored

    indexes = await opened(root, "b" * 64)
    follower = Follower(indexes, lambda _: embed, lambda *_: None, lambda _: None)
    index = await follower.build("papers")
    assert await index.count() == 7
    assert (await index.get("d3")).text == make.record(3).text
    report = await check(indexes, root, "papers")
    assert report.findings == []
