"""Each kind of stored file is truncated, emptied, flipped in one bit, or removed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from service.index.storage import layout, manifest
from tests.conftest import NIGHTLY
from tests.integrity import stores

# a pattern for files of each kind, below the store, and the number of the chosen match
KINDS = {
    "data": ("indexes/x.*/data/*", -1),
    "deletions": ("indexes/x.*/_deletions/*", -1),
    "newest manifest": ("indexes/x.*/_versions/*.manifest", 0),
    "former manifest": ("indexes/x.*/_versions/*.manifest", 2),
    "hint": ("indexes/x.*/_versions/latest*", 0),
    "transaction": ("indexes/x.*/_transactions/*", 0),
    "id index": ("indexes/x.*/_indices/*/page_lookup.lance", 0),
    "words index": ("indexes/x.*/_indices/*/part_*_invert.lance", 0),
    "links index": ("indexes/x.*/_indices/*/bitmap_page_lookup.lance", 0),
    "record of digests": ("integrity/indexes/x.*/*", 0),
    "deleted tables": ("leases/dropped.lance/_versions/*.manifest", 0),
    "leases": ("leases/leases.lance/data/*", -1),
    "classifier": ("heads/classifiers.lance/data/*", -1),
}


def truncate(file: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: len(content) * 2 // 3])


def empty(file: Path) -> None:
    file.write_bytes(b"")


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 4
    file.write_bytes(bytes(content))


def remove(file: Path) -> None:
    file.unlink()


def chosen(root: Path, kind: str) -> Path:
    """A file of a kind; if versions share files, one that the newest version needs."""
    pattern, which = KINDS[kind]
    found = sorted(root.glob(pattern))
    table = next((folder for folder in found[0].parents if folder.suffix == ".lance"), None)
    if table is not None and "_versions" not in pattern:
        newest = next(iter(layout.manifests(table).values()))
        needed = set(manifest.read(table / newest).paths)
        found = [f for f in found if f.relative_to(table).as_posix() in needed]
    return found[which]


DAMAGES = (truncate, empty, flip, remove)
# at night every damage of every kind, else two damages of each
CASES = [
    pytest.param(kind, damage, id=f"{kind}-{damage.__name__}")
    for number, kind in enumerate(KINDS)
    for place, damage in enumerate(DAMAGES)
    if NIGHTLY or place % 2 == number % 2
]


@pytest.mark.usefixtures("idle")
@pytest.mark.parametrize(("kind", "damage"), CASES)
def test_a_damaged_file_affects_one_index_and_is_found_and_repaired_or_named(
    store: Path, tmp_path: Path, kind: str, damage: Callable[[Path], None]
) -> None:
    root = stores.copy(store, tmp_path / "copy")
    file = chosen(root, kind)
    damage(file)

    async def scenario() -> None:
        other = await (await stores.open_indexes(root)).open("y")
        assert await stores.wrong_in_sound(other) == []
        assert (await other.get("y-3")).text == stores.right("y-3")

        report = await stores.checked(root)
        named = [str(finding) for finding in report.findings]
        if kind == "record of digests" and damage is remove:
            assert report.unrecorded > 0
        else:
            assert any(file.name in line for line in named), named

        outcome = await stores.repaired(root, "x" if "/x." in KINDS[kind][0] else None)
        after = await stores.checked(root)
        assert [str(finding) for finding in after.findings] == []
        assert outcome.left == []
        index = await (await stores.open_indexes(root)).open("x")
        assert await stores.wrong_in_sound(index) == []
        if await index.count() < len(stores.names("x")):
            assert any("indexes/x" in line for line in outcome.lost), outcome
        if damage is flip:
            assert outcome.lost == []
            assert await index.count() == len(stores.names("x"))

    stores.run(scenario())
