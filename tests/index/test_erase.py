"""Deleted and replaced texts leave the disk."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from service.bulk.optimizing import condition
from service.errors import ConflictError
from service.index import maintenance
from service.index.commits import delete_everywhere
from service.index.maintenance import Maintainer
from service.index.storage.database import pin, unpin
from tests.conftest import Server, serving, until
from tests.index.conftest import call, upsert
from tests.integrity import stores

WORDS = [b"zanzibarite", b"quokkaburra"]


def held(root: Path) -> set[bytes]:
    """The words that any file below a folder holds."""
    files = [path.read_bytes().lower() for path in root.rglob("*") if path.is_file()]
    return {word for word in WORDS if any(word in content for content in files)}


@pytest.mark.folder
def test_no_file_holds_a_word_of_an_erased_text(tmp_path: Path) -> None:
    async def scenario() -> None:
        indexes = await stores.open_indexes(tmp_path)
        await indexes.create("x", {"year": "integer"})
        index = await indexes.open("x")
        texts = {name: stores.text_of(name) for name in map("d{}".format, range(40))}
        texts["d3"] = "Deleted: a zanzibarite. " + texts["d3"]
        texts["d4"] = "Replaced: a quokkaburra. " + texts["d4"]
        records = [stores.record(*one) for one in texts.items()]
        await index.put([replace(one, metadata={**one.metadata, "year": 1}) for one in records])
        await maintenance.optimize(index.table)
        await delete_everywhere(indexes, "x", index.identity.uid, ["d3"])
        await index.put([stores.record("d4", "another text")])
        # the control
        assert held(tmp_path / "indexes") == set(WORDS)

        await pin(index.table, "abc")
        with pytest.raises(ConflictError, match="export"):
            await maintenance.erase(indexes, "x", index)
        await unpin(index.table, "abc")
        assert await maintenance.erase(indexes, "x", index) > 0
        assert held(tmp_path) == set()
        assert await index.count() == 39
        assert (await index.get("d4")).text == "another text"
        assert (await condition(index)).unindexed["words"] == 0
        assert await maintenance.erase(indexes, "x", index) == 0

    stores.run(scenario())


def test_the_command_erases_beside_a_service(
    tmp_path: Path, light: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    from service.bulk.__main__ import main

    def there(server: Server) -> list[str]:
        listed = call(server, "GET", "/indexes/x/documents")["documents"]
        return [document["id"] for document in listed]

    with serving(tmp_path / "log", *light) as server:
        call(server, "PUT", "/indexes/x", {}, status=201)
        upsert(server, "x", {"id": "a", "text": "A zanzibarite of glass."})
        upsert(server, "x", {"id": "b", "text": "Another text."})
        call(server, "DELETE", "/indexes/x/documents/a", status=204)
        root = tmp_path / "index"
        assert held(root) == {WORDS[0]}
        given = ["erase", "x", "--json", "--index-path", str(root), "--log-level", "error"]
        assert main([*given, *light]) == 0
        [name] = json.loads(capsys.readouterr().out)
        assert name.startswith("x.")
        assert held(root) == set()
        assert there(server) == ["b"]


@pytest.mark.folder
def test_maintenance_follows_a_deletion_without_another_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "QUIET_SECONDS", 0.01)
    monkeypatch.setattr(maintenance, "AGAIN_SECONDS", 0.3)
    monkeypatch.setattr(maintenance, "KEEP_TOMBSTONES", 1000)

    async def scenario() -> None:
        indexes = await stores.open_indexes(tmp_path)
        await indexes.create("x", {"year": "integer"})
        index = await indexes.open("x")
        await index.put([stores.record("a"), stores.record("b")])
        runs: list[str] = []

        async def ran(name: str) -> None:
            runs.append(name)

        maintainer = Maintainer(indexes, ran)
        await delete_everywhere(indexes, "x", index.identity.uid, ["a"])
        maintainer.note("x")
        await until(lambda: len(runs) > 1)
        assert await index.updated(["a", "b"]) == {"b": (await index.get("b")).updated}
        await maintainer.close()

    stores.run(scenario())
