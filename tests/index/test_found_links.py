"""The table of found links, and the limits of a search for them."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from datetime import timedelta
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from service.errors import TooLargeError
from service.index import found_links, link_graph
from service.index import link_graph as given
from service.index.documents import Index
from service.index.found_links import Names, Report
from service.index.indexes import Indexes, Model, connect
from service.index.link_graph import Graph, Source
from service.index.rows import checksums
from service.index.rows.checksums import Part
from service.index.rows.records import Encoding, Record
from tests.conftest import NIGHTLY

TEXTS = {
    "pep-1": "See PEP 2 and PEP 3, and PEP 2.",
    "pep-2": "See PEP 1.",
    "pep-3": "Nothing.",
}


def encoding() -> Encoding:
    own = np.array([1, 0], np.float32)
    return Encoding(own, own[None], [6])


async def filled(path: Path) -> tuple[Indexes, Index]:
    databases = [await connect(f"{path}/{part}") for part in ("indexes", "leases")]
    indexes = Indexes(databases[0], databases[1], Model("model", "a" * 64, 2))
    await indexes.create("x", {})
    index = await indexes.open("x")
    await index.put([Record(name, text, None, {}, [], encoding()) for name, text in TEXTS.items()])
    return indexes, index


async def cited(indexes: Indexes, index: Index, document: str) -> list[str]:
    page = await link_graph.page(index, indexes.found_links, document, ("", ""), 10)
    return [entry.id for entry in page.entries if entry.direction == "cites"]


async def find(indexes: Indexes, index: Index) -> Report:
    rows, report = await found_links.find(index, Names())
    await indexes.found_links.replace(index.identity.uid, rows, report)
    return report


def test_a_damaged_link_is_left_out(tmp_path: Path) -> None:
    async def run() -> None:
        indexes, index = await filled(tmp_path)
        await find(indexes, index)
        assert await cited(indexes, index, "pep-1") == ["pep-2", "pep-3"]
        uid = index.identity.uid
        table = await (await connect(f"{tmp_path}/leases")).open_table(f"links.{uid}")
        await table.update({"places": 7}, where="cited = 'pep-3'")
        assert await cited(indexes, index, "pep-1") == ["pep-2"]
        graph = Graph(index, indexes.found_links, "found")
        assert await graph.citations() == {"pep-1": {"pep-2"}, "pep-2": {"pep-1"}}
        await find(indexes, index)
        assert await cited(indexes, index, "pep-1") == ["pep-2", "pep-3"]

    asyncio.run(run())


def test_links_of_a_former_version_have_no_forms(tmp_path: Path) -> None:
    async def run() -> None:
        indexes, index = await filled(tmp_path)
        await find(indexes, index)
        uid = index.identity.uid
        assert [one.forms for one in await indexes.found_links.citing(uid, ["pep-2"])] == [
            ["pep 1"]
        ]
        (link,) = await indexes.found_links.citing(uid, ["pep-2"])
        rows = found_links.rows([link]).drop_columns(["forms", "checksum"])
        values = [column[0].as_py() for column in rows.columns]
        sealed = rows.append_column("checksum", [[found_links._checksum(*values)]])
        assert found_links._opened(sealed) == [replace(link, forms=[])]
        # the control: a value has changed
        sealed = rows.append_column("checksum", [[found_links._checksum(*values[:-1], [True])]])
        assert found_links._opened(sealed) == []

    asyncio.run(run())


def test_the_graph_counts_each_link_once(tmp_path: Path) -> None:
    async def run() -> None:
        indexes, index = await filled(tmp_path)
        await find(indexes, index)
        given = Record("pep-4", "PEP 2.", None, {}, ["pep-2", "pep-4", "none"], encoding())
        await index.put([given])
        await find(indexes, index)
        names = ["pep-1", "pep-2"]
        counts: dict[Source, dict[str, int]] = {
            "given": {"pep-2": 1},
            "found": {"pep-1": 1, "pep-2": 2},
            "both": {"pep-1": 1, "pep-2": 2},
        }
        for source, expected in counts.items():
            graph = Graph(index, indexes.found_links, source)
            assert await graph.cited_counts(names, None) == expected
        assert await graph.cited_counts(names, "pep-1") == {"pep-1": 1, "pep-2": 1}
        assert (await graph.citations())["pep-4"] == {"pep-2"}
        assert await graph.cites("pep-4") == {"pep-2", "pep-4", "none"}
        assert await graph.cites("pep-1") == {"pep-2", "pep-3"}
        assert await replace(graph, source="given").cites("pep-1") == set()
        assert await replace(graph, source="found").cites("pep-4") == {"pep-2"}

    asyncio.run(run())


def test_texts_that_are_read_one_by_one_give_the_same_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        _, index = await filled(tmp_path)
        together, _ = await found_links.find(index, Names())
        monkeypatch.setattr(found_links, "_MUCH_BYTES", 0)
        assert (await found_links.find(index, Names()))[0].equals(together)
        assert together.num_rows == 3

    asyncio.run(run())


def test_links_are_written_and_read_in_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: dict[str, set[str]] = {"rows": set(), "_opened": set()}
    for name, seen in threads.items():
        call = getattr(found_links, name)

        def noted(links: Any, call: Any = call, seen: set[str] = seen) -> Any:
            if len(links):
                seen.add(threading.current_thread().name.partition("_")[0])
            return call(links)

        monkeypatch.setattr(found_links, name, noted)

    async def run() -> None:
        indexes, index = await filled(tmp_path)
        await find(indexes, index)
        assert await cited(indexes, index, "pep-1") == ["pep-2", "pep-3"]
        assert await Graph(index, indexes.found_links, "found").citations()
        held = await indexes.found_links.links_to(index.identity.uid, ["pep-1"], 10)
        assert held == ({("pep-2", "pep-1")}, True)

    asyncio.run(run())
    assert threads == {"rows": {"words"}, "_opened": {"store"}}


def test_a_search_has_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        indexes, index = await filled(tmp_path)
        monkeypatch.setattr(found_links, "MOST_OF_ONE", 1)
        report = await find(indexes, index)
        assert (report.links, report.places, report.cut) == (2, 4, 1)
        assert await cited(indexes, index, "pep-1") == ["pep-2"]
        monkeypatch.setattr(found_links, "MOST_LINKS", 1)
        with pytest.raises(TooLargeError, match="more than 1 links"):
            await find(indexes, index)
        # what was found before stays
        assert await cited(indexes, index, "pep-1") == ["pep-2"]

    asyncio.run(run())


def test_a_reader_outlives_the_next_search_for_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(found_links, "KEEP_VERSIONS", timedelta(seconds=1))

    async def run() -> None:
        indexes, index = await filled(tmp_path)
        await find(indexes, index)
        await asyncio.sleep(1.2)
        leases = await connect(f"{tmp_path}/leases")
        reader = await leases.open_table(f"links.{index.identity.uid}", still=True)
        version = await reader.version()
        await find(indexes, index)
        assert await reader.query().to_list()
        # the control: it was replaced long ago
        await asyncio.sleep(1.2)
        await find(indexes, index)
        assert version not in {held["version"] for held in await reader.list_versions()}

    asyncio.run(run())


def test_pages_of_a_hub_read_few_links_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    sound = Index.sound

    async def watched(self: Index, rows: pa.Table, *parts: Part) -> pa.Table:
        if "links" in rows.schema.names:
            read.append(rows.num_rows)
        return await sound(self, rows, *parts)

    async def pages(indexes: Indexes, index: Index, limit: int) -> list[list[tuple[str, str]]]:
        made: list[list[tuple[str, str]]] = []
        after: tuple[str, str] = ("", "")
        while True:
            page = await link_graph.page(index, indexes.found_links, "pep-1", after, limit)
            made.append([(entry.direction, entry.id) for entry in page.entries])
            if page.next is None:
                return made
            after = page.next

    async def run() -> None:
        indexes, index = await filled(tmp_path)
        await find(indexes, index)
        names = [f"citing {number:03}" for number in range(40)]
        links = ["pep-1", *(f"other {number}" for number in range(30))]
        citing = [Record(name, "x", None, {}, links, encoding()) for name in names]
        await index.put([*citing, Record("pep-1", TEXTS["pep-1"], None, {}, ["x"], encoding())])
        await index.table.update({"links": ["pep-1"]}, where="id IN ('citing 000', 'citing 020')")
        whole = [("cited_by", name) for name in names if name[-2:] not in ("00", "20")]
        whole += [("cited_by", "pep-2"), ("cites", "x")]
        monkeypatch.setattr(Index, "sound", watched)
        [one] = await pages(indexes, index, 1000)
        assert one == whole
        assert max(read) <= 32
        for limit in (1 if NIGHTLY else 3, 7, 20, 40, 41):
            made = await pages(indexes, index, limit)
            assert list(chain.from_iterable(made)) == whole
            assert {len(page) for page in made[:-1]} <= {limit}
        read.clear()
        first = await link_graph.page(index, indexes.found_links, "pep-1", ("", ""), 1)
        assert [entry.id for entry in first.entries] == ["citing 001"]
        # its own links, and a few of the others
        assert sum(read) <= 5

    asyncio.run(run())


def test_the_links_of_an_index_are_converted_in_other_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event loop answers other requests meanwhile."""
    links = {
        f"document {n:03}": [f"document {n * m % 300:03}" for m in range(6)] for n in range(300)
    }
    threads: set[int] = set()
    convert = checksums.texts

    def noted(values: Any) -> list[str]:
        threads.add(threading.get_ident())
        return convert(values)

    async def run() -> None:
        indexes, index = await filled(tmp_path)
        await index.put([Record(n, "x", None, {}, own, encoding()) for n, own in links.items()])
        with monkeypatch.context() as patch:
            patch.setattr(given, "_texts", noted)
            patch.setattr(checksums, "texts", noted)
            patch.setattr(link_graph, "texts", noted)
            made = await Graph(index, indexes.found_links, "both").citations()
        expected = {name: {*own} - {name} for name, own in links.items()}
        assert made.items() >= {name: own for name, own in expected.items() if own}.items()

    asyncio.run(run())
    assert threads
    assert threading.get_ident() not in threads
