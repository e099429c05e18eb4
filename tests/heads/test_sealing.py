"""The checksum of a stored head."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from docsplit.heads import network
from docsplit.heads.examples import Examples
from docsplit.heads.network import Network
from service.bulk.check import check
from service.errors import StoreError
from service.index import sql
from service.index.storage.database import connect
from service.learning.heads import Head, Heads
from tests.integrity.stores import open_indexes

NETWORK = Network((np.ones((4, 2), np.float32),), (np.zeros(2, np.float32),))
REPORT = {"labels": {"sport": 2, "wetter": 2}, "accuracy": 0.75, "history": []}
ROW: dict[str, Any] = {
    "name": "kind",
    "uid": "12ab",
    "revision": "34cd",
    "labels": ["sport", "wetter"],
    "network": b"network",
    "report": REPORT,
}


def flips(text: str) -> list[str]:
    """The text with each of its bits flipped, where that gives UTF-8."""
    found = []
    for place, bit in np.ndindex(len(text.encode()), 8):
        flipped = bytearray(text.encode())
        flipped[place] ^= 1 << bit
        try:
            found.append(flipped.decode())
        except UnicodeDecodeError:
            continue
    return found


def test_a_flipped_bit_never_gives_another_head() -> None:
    row = {**ROW, "report": network.sealed(ROW)}
    assert network.unsealed(row) == REPORT
    for column in ("name", "uid", "revision"):
        for flipped in flips(row[column]):
            with pytest.raises(ValueError, match="differs from its checksum"):
                network.unsealed({**row, column: flipped})
    for flipped in flips("sport"):
        with pytest.raises(ValueError, match="differs from its checksum"):
            network.unsealed({**row, "labels": [flipped, "wetter"]})
    with pytest.raises(ValueError, match="differs from its checksum"):
        network.unsealed({**row, "labels": ["wetter", "sport"]})
    for flipped in flips(row["report"]):
        try:
            held = network.unsealed({**row, "report": flipped})
        except ValueError:
            continue
        # of the checksum's name, or of a blank: both leave the report as it is
        assert {name: held[name] for name in REPORT} == REPORT


def test_a_head_of_a_former_version_has_no_checksum() -> None:
    assert network.unsealed({**ROW, "report": json.dumps(REPORT)}) == REPORT


async def test_a_damaged_label_is_reported(tmp_path: Path) -> None:
    heads = Heads(await connect(str(tmp_path)), "classifiers", "classifier")
    head = Head("kind", "12ab", "34cd", ["sport", "wetter"], REPORT, NETWORK)
    await heads.put(head, Examples(["a", "b"], [["sport"], ["wetter"]]))
    stored = await heads.get("kind")
    assert stored.report == REPORT | {"history": []}
    await heads._table.change(sql.compare("name", "=", "kind"), labels=["spoxt", "wetter"])
    fresh = Heads(await connect(str(tmp_path)), "classifiers", "classifier")
    with pytest.raises(StoreError, match="damaged: train it again"):
        await fresh.get("kind")
    # it can be trained again
    assert (await fresh.put(head, Examples(["a"], [["sport"]]))).report["history"] == []
    assert (await fresh.get("kind")).labels == ["sport", "wetter"]


@pytest.mark.folder
async def test_the_check_of_a_store_reports_a_damaged_label(tmp_path: Path) -> None:
    heads = Heads(await connect(f"{tmp_path}/heads"), "classifiers", "classifier")
    await heads.put(Head("kind", "12ab", "34cd", ["sport", "wetter"], REPORT, NETWORK))
    indexes = await open_indexes(tmp_path)
    sound = await check(indexes, tmp_path, None)
    assert [str(finding) for finding in sound.findings] == []
    await heads._table.change(sql.compare("name", "=", "kind"), labels=["spoxt", "wetter"])
    report = await check(indexes, tmp_path, None)
    assert [f"{finding.document} {finding.part}" for finding in report.findings] == ["kind report"]
