"""A repair that was interrupted between two steps loses no document, and the next one says so."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from service.index.documents import Index
from service.integrity import unfinished
from tests.integrity import stores
from tests.integrity.test_torn_files import truncate

DAMAGED = ["x-3", "x-4", "x-6"]


class Stop(BaseException):
    """The end of a process; nothing handles it."""


def fail(*_: Any, **__: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


async def plans(root: Path) -> list[Path]:
    index = await (await stores.open_indexes(root)).open("x")
    return unfinished.of_table(root, index.table.name)


@pytest.mark.parametrize("step", ["_write", "delete", "merge", "merged", "end"])
def test_an_interrupted_repair_is_finished_by_the_next(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    root = stores.copy(store, tmp_path / "copy")

    async def scenario() -> None:
        index = await (await stores.open_indexes(root)).open("x")
        within = ", ".join(f"'{name}'" for name in DAMAGED)
        await index.table.update({"updated": 12345}, where=f"id IN ({within})")
        await index.table.update({"title": "another"}, where="id = 'x-7'")
        with monkeypatch.context() as patch:
            merge, table = Index.merge_rows, type(index.table)

            async def merged(self: Index, *given: Any, **named: Any) -> None:
                await merge(self, *given, **named)
                raise Stop

            async def stopped(*_: Any) -> None:
                raise Stop

            if step == "_write":
                patch.setattr(unfinished, "_write", fail)
            elif step == "delete":
                patch.setattr(table, "delete", stopped)
            elif step == "end":
                patch.setattr(unfinished.Plans, "end", fail)
            else:
                patch.setattr(Index, "merge_rows", fail if step == "merge" else merged)
            with pytest.raises((OSError, Stop)):
                await stores.repaired(root, "x")
        found = [str(finding) for finding in (await stores.checked(root, "x")).findings]
        assert found
        assert any("interrupted" in one for one in found) == (step != "_write")

        outcome = await stores.repaired(root, "x")
        index = await (await stores.open_indexes(root)).open("x")
        assert await index.count() == len(stores.names("x")) - 1
        for name in DAMAGED:
            assert (await index.get(name)).text == stores.right(name)
            assert any(name in line for line in outcome.repaired)
        assert [line for line in outcome.lost if "x-7" not in line] == []
        assert len(outcome.lost) == 1
        assert outcome.left == []
        assert (await stores.checked(root, "x")).findings == []
        assert await plans(root) == []
        assert await stores.wrong_in_sound(index) == []

    stores.run(scenario())


def test_rows_of_a_damaged_file_survive_an_interruption(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    roots = [stores.copy(store, tmp_path / name) for name in ("whole", "interrupted")]
    for root in roots:
        # the file of the four newest documents
        file = max(root.glob("indexes/x.*/data/*"), key=lambda file: file.stat().st_mtime_ns)
        content = bytearray(file.read_bytes())
        place = len(content) // 10
        content[place : place + 4] = bytes(byte ^ 255 for byte in content[place : place + 4])
        file.write_bytes(bytes(content))

    async def scenario() -> None:
        whole = await stores.repaired(roots[0], "x")
        with monkeypatch.context() as patch:
            patch.setattr(Index, "merge_rows", fail)
            with pytest.raises(OSError, match="No space"):
                await stores.repaired(roots[1], "x")
        again = await stores.repaired(roots[1], "x")
        assert whole.repaired
        assert whole.lost
        assert again.lost == whole.lost
        counts = [await (await (await stores.open_indexes(r)).open("x")).count() for r in roots]
        assert counts[0] == counts[1] > len(stores.names("x")) - 4
        assert (await stores.checked(roots[1], "x")).findings == []

    stores.run(scenario())


def test_a_document_that_was_deleted_after_an_interruption_stays_deleted(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = stores.copy(store, tmp_path / "copy")

    async def scenario() -> None:
        index = await (await stores.open_indexes(root)).open("x")
        await index.table.update({"updated": 12345}, where="id = 'x-3'")
        with monkeypatch.context() as patch:
            patch.setattr(unfinished.Plans, "end", fail)
            with pytest.raises(OSError, match="No space"):
                await stores.repaired(root, "x")
        assert await index.has("x-3")
        # as after a deletion whose tombstone is too old to be kept
        await index.table.delete("id = 'x-3'")
        await stores.repaired(root, "x")
        assert not await index.has("x-3")

    stores.run(scenario())


def test_a_damaged_plan_is_named(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = stores.copy(store, tmp_path / "copy")

    async def scenario() -> None:
        index = await (await stores.open_indexes(root)).open("x")
        await index.table.update({"updated": 12345}, where="id = 'x-3'")
        with monkeypatch.context() as patch:
            patch.setattr(Index, "merge_rows", fail)
            with pytest.raises(OSError, match="No space"):
                await stores.repaired(root, "x")
        [plan] = await plans(root)
        truncate(plan)
        outcome = await stores.repaired(root, "x")
        assert [str(plan.relative_to(root)) in line for line in outcome.left] == [True]
        assert (plan.parent / "rows.arrow").exists()

    stores.run(scenario())
