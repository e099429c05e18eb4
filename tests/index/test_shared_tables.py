"""Damage to the tables that all indexes share."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import replace
from pathlib import Path

from service.errors import lance_fault
from service.index.rows.schema import Identity
from tests.index.test_recovery import Process, begun


def test_a_panic_of_lancedb_counts_as_damage() -> None:
    # the name of LanceDB's class, which cannot be imported
    panic = type("RustPanic", (Exception,), {})
    assert lance_fault(panic("rust future panicked: unknown error")) == "panic"
    assert lance_fault(Exception("rust future panicked: unknown error")) is None


async def completeness(folder: Path, identity: Identity) -> bool:
    """Whether a new process sees a generation as complete."""
    return await (await Process(folder).open()).registry.complete(identity)


def damage(folder: Path, table: str) -> None:
    """Cut off the table's data."""
    for path in (folder / "leases" / f"{table}.lance" / "data").iterdir():
        content = path.read_bytes()
        path.write_bytes(content[:64])


def test_one_damaged_copy_of_the_generations_table_hides_no_index(tmp_path: Path) -> None:
    first = Identity("u", "first", False, True, "model", "b" * 64, {})
    later = replace(first, generation="later")

    async def main() -> None:
        registry = (await begun(tmp_path)).registry
        assert not await completeness(tmp_path, first)
        await registry.mark(first)
        # like a store of an earlier version: the first reader makes the copy again
        shutil.rmtree(tmp_path / "leases" / "generations_copy.lance")
        assert await completeness(tmp_path, first)
        damage(tmp_path, "generations")
        assert await completeness(tmp_path, first)
        assert not await completeness(tmp_path, later)
        await (await Process(tmp_path).open()).registry.mark(later)
        damage(tmp_path, "generations_copy")
        assert await completeness(tmp_path, first)
        assert await completeness(tmp_path, later)

    asyncio.run(main())
