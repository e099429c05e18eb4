"""The commands of docs/how-to/operate.md for backup and restore, tested during writes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import threading
import time
from pathlib import Path

import httpx
import lancedb
import numpy as np
import pytest

from service.bulk.__main__ import main
from tests.conftest import ROOT, serving

DOCUMENT = (ROOT / "docs" / "how-to" / "operate.md").read_text(encoding="utf-8")


def slow_tar(folder: Path) -> dict[str, str]:
    """A path with a tar that begins late, so that writes come between two of them."""
    folder.mkdir()
    shim = folder / "tar"
    shim.write_text(f'#!/bin/sh\nsleep 0.5\nexec {shutil.which("tar")} "$@"\n')
    shim.chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


def block(name: str, index: Path, backup: Path, **environment: str) -> int:
    [commands] = re.findall(rf"```{name}\n(.*?)```", DOCUMENT, re.DOTALL)
    env = os.environ | {"INDEX": str(index), "BACKUP": str(backup)} | environment
    return subprocess.run(["bash", "-uc", commands], env=env, check=False).returncode


def check(index: Path) -> int:
    return main(["check", "--index-path", str(index), "--log-level", "error"])


def tables(index: Path) -> list[str]:
    return [path.stem for path in (index / "indexes").glob("*.lance")]


def opened(index: Path, name: str) -> lancedb.table.Table:
    return lancedb.connect(index / "indexes").open_table(name)


def texts(first: int, last: int) -> list[dict[str, str]]:
    return [{"id": f"{n:03}", "text": f"Document {n} of {n * 7919}."} for n in range(first, last)]


def test_writes_acknowledged_before_a_backup_are_restored(
    tmp_path: Path, light: tuple[str, ...]
) -> None:
    backup, restored = tmp_path / "backup", tmp_path / "restored"
    backup.mkdir()
    restored.mkdir()
    index = tmp_path / "index"
    examples = {"inputs": ["a cat", "a dog", "a tax", "a law"], "labels": list("xxyy")}
    with (
        serving(tmp_path / "log", *light) as server,
        httpx.Client(base_url=server.url, timeout=60) as client,
    ):
        client.put("/indexes/papers", json={}).raise_for_status()
        for first in range(0, 60, 20):
            body = {"documents": texts(first, first + 20)}
            client.post("/indexes/papers/documents", json=body).raise_for_status()
        client.put("/classifiers/topics", json=examples).raise_for_status()
        query = {"index": "papers", "text": "Document 7", "top_k": 5, "filter": None}
        known = client.post("/classify", json={"inputs": "a cat"}).json()
        over = threading.Event()
        written: list[int] = []

        def write() -> None:
            with httpx.Client(base_url=server.url, timeout=60) as writing:
                while not over.is_set():
                    number = 60 + len(written)
                    body = {"documents": texts(number, number + 1)}
                    writing.post("/indexes/papers/documents", json=body).raise_for_status()
                    written.append(number)

        writer = threading.Thread(target=write)
        writer.start()
        while not written and writer.is_alive():
            time.sleep(0.01)
        try:
            # documents written or deleted in between do not count
            assert block("backup", index, backup, **slow_tar(tmp_path / "bin")) in (0, 1)
        finally:
            over.set()
            writer.join()
    assert block("restore", restored, backup) == 0
    assert check(restored) == 0
    # the control: half of a backup is useless
    half = tmp_path / "half"
    half.mkdir()
    subprocess.run(["tar", "--extract", "--file", backup / "rest.tar"], cwd=half, check=True)
    assert tables(restored)
    for name in tables(restored):
        opened(restored, name)
        with pytest.raises(ValueError, match="not found"):
            opened(half, name)
    with serving(tmp_path / "log2", "--index-path", str(restored), *light) as server:
        client = httpx.Client(base_url=server.url, timeout=60)
        with client:
            page = client.get("/indexes/papers/documents", params={"limit": 1000}).json()
            ids = {document["id"] for document in page["documents"]}
            assert {f"{n:03}" for n in range(60)} <= ids
            found = client.post("/similar", json=query)
            assert found.status_code == 200
            assert len(found.json()) == 5
            again = client.post("/classify", json={"inputs": "a cat"}).json()
            assert [p["label"] for p in again[0]] == [p["label"] for p in known[0]]
            scores, former = ([p["score"] for p in one[0]] for one in (again, known))
            assert np.allclose(scores, former, atol=1e-4)
            # and the restored table accepts writes
            body = {"documents": texts(500, 501)}
            client.post("/indexes/papers/documents", json=body).raise_for_status()


@pytest.mark.parametrize("name", ["backup", "restore"])
def test_a_missing_folder_is_reported(tmp_path: Path, name: str) -> None:
    assert block(name, tmp_path / "nowhere", tmp_path) != 0
