"""Damage to the service's own files is named by a check, stops no index, and is repaired."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from service.index.storage import manifest, place, recovery
from tests.index.test_recovery import Process, begun, ids, table_of
from tests.integrity import stores


def flips(file: Path) -> list[bytes]:
    """Copies of the file's content, each with another wrong bit."""
    whole = file.read_bytes()
    found = []
    for bit in range(8 * len(whole)):
        content = bytearray(whole)
        content[bit // 8] ^= 1 << bit % 8
        found.append(bytes(content))
    return found


@pytest.fixture
def root(tmp_path: Path) -> Path:
    asyncio.run(begun(tmp_path))
    return tmp_path


def test_every_wrong_bit_of_the_identity_and_of_a_noted_version_is_found(root: Path) -> None:
    file = root / place.NAME
    name = place.identity(file)
    taken = []
    for content in flips(file):
        file.write_bytes(content)
        with suppress(ValueError):
            taken.append(place.identity(file))
    assert taken == []
    file.write_text(f'{{"id": "{name}", "format": 1}}\n')
    assert place.identity(file) == name
    note = table_of(root, "x") / recovery.SYNCED
    version = recovery.synced(note.parent)
    assert version == max(manifest.versions(note.parent))
    for content in flips(note):
        with pytest.raises(ValueError, match="checksum"):
            recovery.synced_of(content)
    assert recovery.synced_of(b"%020d\n" % version) == version


DAMAGE: dict[str, tuple[Callable[[Path], Path], bytes]] = {
    "identity": (lambda root: root / place.NAME, b'{"id": "a'),
    "noted version": (lambda root: table_of(root, "x") / recovery.SYNCED, b"000"),
    "a missing version": (
        lambda root: table_of(root, "x") / recovery.SYNCED,
        b"%020d\n" % 10**9,
    ),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_file_of_the_service_is_named_and_repaired(root: Path, kind: str) -> None:
    path, content = DAMAGE[kind]
    file = path(root)

    async def scenario() -> None:
        assert (await stores.checked(root)).findings == []
        file.write_bytes(content)
        assert [finding.file for finding in (await stores.checked(root)).findings] == [file.name]
        outcome = await stores.repaired(root)
        assert [line for line in outcome.repaired if file.name in line]
        assert (outcome.lost, outcome.left) == ([], [])
        assert (await stores.checked(root)).findings == []
        assert await ids(await Process(root).open(), "x") == ["0", "1", "2", "3", "4"]

    asyncio.run(scenario())
