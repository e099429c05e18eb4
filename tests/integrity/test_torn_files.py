"""Each kind of stored file is truncated, emptied, flipped in one bit, or removed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from service.errors import StoreError, lance_fault
from tests.conftest import NIGHTLY
from tests.index.test_recovery import Process, age
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


DAMAGES = (truncate, empty, flip, remove)
# at night every damage of every kind, else two damages of each
CASES = [
    pytest.param(kind, damage, id=f"{kind}-{damage.__name__}")
    for number, kind in enumerate(KINDS)
    for place, damage in enumerate(DAMAGES)
    if NIGHTLY or place % 2 == number % 2
]


@pytest.mark.parametrize(("kind", "damage"), CASES)
async def test_a_damaged_file_affects_one_index_and_is_named_if_rows_are_lost(
    store: Path, tmp_path: Path, kind: str, damage: Callable[[Path], None]
) -> None:
    root = stores.copy(store, tmp_path / "copy")
    for table in root.glob("*/*.lance"):
        age(table)
    pattern, which = KINDS[kind]
    damage(sorted(root.glob(pattern))[which])

    process = Process(root, model=stores.MODEL)
    indexes = await process.open()
    other = await indexes.open("y")
    assert await stores.wrong_in_sound(other) == []
    refused: Exception | None = None
    try:
        index = await indexes.open("x")
        whole = await stores.wrong_in_sound(index) == []
    except Exception as error:  # noqa: BLE001 LanceDB panics on some damage
        refused, whole = error, False
    else:
        assert await stores.wrong_answers(index, stores.names("x")) == []
    assert refused is None or isinstance(refused, StoreError) or lance_fault(refused)
    if not whole and "_indices" not in pattern:
        assert (await stores.checked(root, "x")).findings
    process.volume.close()
