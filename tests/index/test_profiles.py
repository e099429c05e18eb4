"""Profiles of indexes: fitted, stored, used by searches, and forgotten."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
import numpy as np
import pytest
from lancedb.table import AsyncTable
from numpy.typing import NDArray

from docsplit.bundles import format as bundle
from docsplit.ranking import adaptation
from docsplit.ranking.adaptation import RIDGE, SHARE, SHARES, Sample
from service.index import maintenance, profiles
from service.index.documents import Index
from service.index.indexes import Indexes, Model, connect
from service.index.maintenance import Maintainer
from service.index.query import search
from service.index.rows.records import Encoding, Record
from tests.conftest import serving, wait_until
from tests.index.conftest import call

DIMENSIONS = 24
MODEL = Model("model", "a" * 64, DIMENSIONS)
Array = NDArray[np.float64]


def unit(vectors: Array) -> Array:
    made: Array = vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)
    return made


def windows(count: int, dimensions: int = DIMENSIONS, noise: float = 1.5) -> Array:
    """Four windows of each document: its own topic, a common centre, and noise in 12 directions."""
    draw = np.random.default_rng(7)
    topics = np.zeros((count, 1, dimensions))
    topics[..., :12] = draw.normal(size=(count, 1, 12)) + 0.5
    made = np.repeat(topics, 4, axis=1)
    made[..., 12:24] += noise * draw.normal(size=(count, 4, 12))
    # the service stores windows in half precision
    return unit(made).astype(np.float16).astype(np.float64)


def records(corpus: Array, cited: Array | None = None) -> list[Record]:
    """Documents; with ``cited``, each cites the one of the highest number in its row."""
    vectors = unit(corpus.mean(axis=1)).astype(np.float32)
    links = [[]] * len(corpus) if cited is None else [[f"d{i:03}"] for i in cited.argmax(axis=1)]
    return [
        Record(
            f"d{i:03}", f"text {i}", None, {}, links[i], Encoding(vectors[i], part, [1, 2, 3, 4])
        )
        for i, part in enumerate(corpus.astype(np.float32))
    ]


async def opened(path: Path, model: Model = MODEL) -> Indexes:
    databases = [await connect(f"{path}/{part}") for part in ("indexes", "leases")]
    return Indexes(databases[0], databases[1], model)


async def begun(
    path: Path, corpus: Array, model: Model = MODEL, cited: Array | None = None
) -> tuple[Indexes, Index]:
    indexes = await opened(path, model)
    await indexes.create("x", {})
    index = await indexes.open("x")
    await index.put(records(corpus, cited))
    return indexes, index


async def table(path: Path) -> AsyncTable:
    """The table of profiles."""
    return await (await connect(f"{path}/leases")).open_table("profiles")


def adapted(corpus: Array, share: float = SHARE) -> Array:
    """Adapted cosines of all pairs of documents, by the definition; 0 for a document itself."""
    vectors = unit(corpus.mean(axis=1))
    differences = (corpus - corpus.mean(axis=1, keepdims=True)).reshape(-1, corpus.shape[-1])
    covariance = differences.T @ differences
    covariance /= np.trace(covariance) / len(covariance)
    values, directions = np.linalg.eigh(covariance + RIDGE * np.eye(len(covariance)))
    whitened = unit((vectors - share * vectors.mean(axis=0)) @ directions / np.sqrt(values))
    return whitened @ whitened.T * (1 - np.eye(len(corpus)))


def scenario(test: Callable[[Path], Awaitable[None]]) -> Callable[[Path], None]:
    def started(tmp_path: Path) -> None:
        asyncio.run(test(tmp_path))  # type: ignore[arg-type]

    started.__name__ = test.__name__
    return started


@pytest.mark.parametrize(("short", "used"), [(150, True), (151, False)])
def test_a_few_long_documents_do_not_speak_for_short_ones(short: int, used: bool) -> None:
    sample = Sample(DIMENSIONS)
    for number, part in enumerate(windows(150 + short).astype(np.float32)):
        held = part if number < 150 else part[:1]
        sample.add(f"d{number}", unit(held.mean(axis=0)).astype(np.float32), held)
    profile, gain = sample.fit()
    assert gain.sure
    assert gain.halves == 150
    assert (profile is not None) == used


@scenario
async def test_a_search_ranks_by_the_adapted_cosine(tmp_path: Path) -> None:
    corpus = windows(150)
    indexes, index = await begun(tmp_path, corpus)
    fitted = await indexes.profiles.fit(index)
    gain = fitted.gain
    assert gain.halves == fitted.documents == 150
    assert gain.difference > gain.error > 0
    query = await search.stored(index, "d003")
    raw = await search.cosine(index, query, 10, None)
    assert [hit.score for hit in raw] == [hit.cosine for hit in raw]
    hits = await search.cosine(index, replace(query, profile=fitted.profile), 10, None)
    expected = adapted(corpus)[3]
    best = [f"d{i:03}" for i in np.argsort(-expected)[:10]]
    assert [hit.id for hit in hits] == best != [hit.id for hit in raw]
    assert [hit.score for hit in hits] == pytest.approx(-np.sort(-expected)[:10], abs=1e-4)
    vectors = unit(corpus.mean(axis=1))
    places = [int(hit.id[1:]) for hit in hits]
    assert [hit.cosine for hit in hits] == pytest.approx(vectors[places] @ vectors[3], abs=1e-4)


@scenario
async def test_documents_far_down_the_plain_order_are_found(tmp_path: Path) -> None:
    corpus = windows(1000, noise=3)
    vectors = unit(corpus.mean(axis=1))
    expected, plain = adapted(corpus), vectors @ vectors.T
    # the lowest plain cosine of the ten documents that have the highest adapted ones
    best = np.argsort(-expected)[:, :10]
    lowest = np.take_along_axis(plain, best, axis=1).min(axis=1)
    far = int(np.argmin(lowest))
    assert (plain[far] > lowest[far]).sum() > 2 * search.ADAPTED_CANDIDATES
    indexes, index = await begun(tmp_path, corpus)
    fitted = await indexes.profiles.fit(index)
    query = await search.stored(index, f"d{far:03}")
    hits = await search.cosine(index, replace(query, profile=fitted.profile), 10, None)
    assert [hit.id for hit in hits] == [f"d{i:03}" for i in best[far]]


@scenario
async def test_a_corpus_without_gain_stays_raw(tmp_path: Path) -> None:
    # the windows of a document are almost the same, so each half finds the other one
    indexes, index = await begun(tmp_path, windows(60, noise=0.01))
    fitted = await indexes.profiles.fit(index)
    assert fitted.gain.raw == 1
    assert fitted.profile is None
    assert await indexes.profiles.get(index) == fitted
    assert not await indexes.profiles.wanted(index)


@pytest.mark.parametrize("share", SHARES)
def test_links_choose_the_share_of_the_mean(tmp_path: Path, share: float) -> None:
    async def test() -> None:
        corpus = windows(80)
        expected = adapted(corpus, share)
        indexes, index = await begun(tmp_path, corpus, cited=expected)
        query = await search.stored(index, "d003")
        fitted = await indexes.profiles.fit(index)
        hits = await search.cosine(index, replace(query, profile=fitted.profile), 5, None)
        scores = [expected[3, int(hit.id[1:])] for hit in hits]
        assert [hit.score for hit in hits] == pytest.approx(scores, abs=1e-4)

    asyncio.run(test())


@pytest.mark.parametrize(("other", "share"), [(80, 0.75), (4, SHARE)])
def test_links_must_surely_prefer_another_share_of_the_mean(other: int, share: float) -> None:
    # the links of one in ``other`` documents prefer a fourth, those of the rest three fourths
    corpus = windows(80)
    orders = [np.argsort(-adapted(corpus, held)) for held in (0.25, 0.75)]
    sample = Sample(DIMENSIONS)
    for number, part in enumerate(corpus.astype(np.float32)):
        cited = orders[number % other > 0][number, :5]
        vector = unit(part.mean(axis=0)).astype(np.float32)
        sample.add(f"d{number}", vector, part, [f"d{place}" for place in cited])
    profile, _ = sample.fit()
    assert profile is not None
    mean = share * unit(corpus.mean(axis=1)).mean(axis=0)
    np.testing.assert_allclose(profile.mean, mean, atol=1e-4)


@pytest.mark.parametrize(("short", "used"), [(75, True), (76, False)])
def test_a_profile_of_an_earlier_version_does_not_speak_for_short_documents(
    tmp_path: Path, short: int, used: bool
) -> None:
    async def test() -> None:
        made = records(windows(150))
        for place, one in enumerate(made[:short]):
            own = replace(one.encoding, windows=one.encoding.windows[:1], ends=[1])
            made[place] = replace(one, encoding=own)
        indexes = await opened(tmp_path)
        await indexes.create("x", {})
        index = await indexes.open("x")
        await index.put(made)
        with patch.object(adaptation, "LEAST_SHARE", 0):
            assert (await indexes.profiles.fit(index)).profile is not None
        for replica in (indexes, await opened(tmp_path)):
            held = await replica.profiles.get(index)
            assert held is not None
            assert held.gain.halves == 150 - short
            assert (held.profile is not None) == used

    asyncio.run(test())


@scenario
async def test_links_that_the_raw_cosine_finds_better_keep_it(tmp_path: Path) -> None:
    corpus = windows(80)
    vectors = unit(corpus.mean(axis=1))
    cited = vectors @ vectors.T - 2 * np.eye(80)
    indexes, index = await begun(tmp_path, corpus, cited=cited)
    fitted = await indexes.profiles.fit(index)
    assert fitted.gain.sure
    assert fitted.profile is None
    # fewer links choose nothing
    await index.put(records(corpus)[:40])
    assert (await indexes.profiles.fit(index)).profile is not None


@scenario
async def test_maintenance_fits_again_when_the_documents_have_doubled(tmp_path: Path) -> None:
    corpus = windows(100)
    indexes, index = await begun(tmp_path, corpus[:49])
    fits = []
    for number in (49, 50, 99, 100):
        await index.put(records(corpus[:number]))
        await maintained(indexes)
        fitted = await indexes.profiles.get(index)
        fits.append(fitted and fitted.documents)
    assert fits == [None, 50, 50, 100]


@scenario
async def test_another_process_uses_the_newest_profile(tmp_path: Path) -> None:
    indexes, index = await begun(tmp_path, windows(60))
    other = (await opened(tmp_path)).profiles
    assert await other.get(index) is None
    for fit in range(2):
        fitted = await indexes.profiles.fit(index)
        if fit == 0:
            # it has read the table a moment ago
            assert await other.get(index) is None
        with patch.object(profiles, "CHECK_SECONDS", 0):
            read = await other.get(index)
        assert read is not None
        assert (read.version, read.gain) == (fitted.version, fitted.gain)


@pytest.mark.parametrize(
    "damage", ["bytes", "column", pytest.param("file", marks=pytest.mark.folder)]
)
def test_a_damaged_profile_counts_as_none_until_the_next_fit(tmp_path: Path, damage: str) -> None:
    async def test(path: Path) -> None:
        indexes, index = await begun(path, windows(60))
        fitted = await indexes.profiles.fit(index)
        assert fitted.profile is not None
        held = await table(path)
        if damage == "bytes":
            numbers = b"\0" + (await held.query().to_arrow())["numbers"][0].as_py()[1:]
            await held.update(updates_sql={"numbers": f"X'{numbers.hex()}'"})
        elif damage == "column":
            await held.update({"adapted": 0.25})
        else:
            for file in (path / "leases" / "profiles.lance" / "data").iterdir():
                file.write_bytes(bytes(file.stat().st_size))
        again = await opened(path)
        assert await again.profiles.get(index) is None
        if damage != "file":
            await maintained(again)
            read = await again.profiles.get(index)
            assert read is not None
            assert read.gain == fitted.gain

    asyncio.run(test(tmp_path))


@scenario
async def test_a_deleted_index_leaves_no_profile(tmp_path: Path) -> None:
    indexes, index = await begun(tmp_path, windows(60))
    await indexes.profiles.fit(index)
    held = await table(tmp_path)
    assert await held.count_rows() == 1
    await indexes.drop("x")
    assert await held.count_rows() == 0
    assert await indexes.profiles.get(index) is None
    # a later index of the same name begins without one
    _, index = await begun(tmp_path, windows(60))
    assert await indexes.profiles.get(index) is None


async def maintained(indexes: Indexes) -> None:
    """Return after a maintenance of the index."""
    done = asyncio.Event()

    async def finish(_: str) -> None:
        done.set()

    maintainer = Maintainer(indexes, finish)
    with patch.object(maintenance, "QUIET_SECONDS", 0.01):
        maintainer.note("x")
        await asyncio.wait_for(done.wait(), 30)
    await maintainer.close()


def test_a_service_adapts_an_index_from_an_older_version(
    tmp_path: Path, light: tuple[str, ...]
) -> None:
    manifest = bundle.load(Path(light[1])).manifest
    model = Model(manifest.name, manifest.revision, manifest.dimensions)
    corpus = windows(80, manifest.dimensions)

    async def fill() -> None:
        await begun(tmp_path / "index", corpus, model)

    asyncio.run(fill())
    with serving(tmp_path / "log", *light) as server:

        def similar(**body: Any) -> list[dict[str, Any]]:
            query = {"index": "x", "top_k": 5} | (body if "text" in body else {"id": "d003"} | body)
            return list(call(server, "POST", "/similar", query))

        assert call(server, "GET", "/indexes/x")["adaptation"] is None
        raw = similar()
        assert all(hit["score"] == hit["cosine"] for hit in raw)
        # the first search asked for a profile
        wait_until(lambda: call(server, "GET", "/indexes/x")["adaptation"] is not None, 30)
        shown = call(server, "GET", "/indexes/x")["adaptation"]
        assert (shown["used"], shown["documents"], shown["halves"]) == (True, 80, 80)
        assert shown["gain"] == pytest.approx(shown["adapted"] - shown["raw"])
        assert 0 < shown["low"] < shown["gain"] < shown["high"]
        expected = adapted(corpus)[3]
        hits = similar()
        assert [hit["id"] for hit in hits] == [f"d{i:03}" for i in np.argsort(-expected)[:5]]
        assert [hit["score"] for hit in hits] == pytest.approx(-np.sort(-expected)[:5], abs=1e-4)
        assert [hit["id"] for hit in hits] != [hit["id"] for hit in raw]
        assert similar(adapt=False) == raw
        hybrid = similar(mode="hybrid")
        assert hybrid != similar(mode="hybrid", adapt=False)
        assert similar(text="text 3") != similar(text="text 3", adapt=False)
        assert (
            'docsplit_index_profiles_total{outcome="adapted"} 1.0'
            in httpx.get(f"{server.url}/metrics").text
        )
