"""``docsplit-index --ray``: actors of a cluster embed documents."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from pathlib import Path

import httpx
import pytest

from service.index.storage.database import connect, table_names
from tests.conftest import NIGHTLY, ROOT, Server
from tests.index.test_bulk import command, run, write

DOCUMENTS = 1500


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = [{"id": f"d{number:04}", "text": f"Text {number}."} for number in range(DOCUMENTS)]
    folder = tmp_path_factory.mktemp("documents")
    return write(folder / "documents.jsonl", *rows, {"id": "empty", "text": " "})


def actors(parent: int) -> list[int]:
    """Processes of Ray actors that descend from a process."""
    parents, titles = {}, {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            stat = (path / "stat").read_text()
            titles[int(path.name)] = (path / "cmdline").read_text()
        except OSError:  # it has ended
            continue
        parents[int(path.name)] = int(stat.rpartition(")")[2].split()[1])
    found = []
    for pid, title in titles.items():
        above = pid
        while above in parents and above != parent:
            above = parents[above]
        if above == parent and title.startswith("ray::_Worker"):
            found.append(pid)
    return found


async def vectors(path: Path) -> dict[str, list[float]]:
    database = await connect(str(path / "indexes"))
    [name] = await table_names(database)
    found = await (await database.open_table(name)).query().select(["id", "vector"]).to_arrow()
    return dict(zip(found["id"].to_pylist(), found["vector"].to_pylist(), strict=True))


@pytest.mark.skipif(not NIGHTLY, reason="starts a cluster: nightly")
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for actors in /proc")
def test_a_lost_actor_loses_nothing(file: Path, tmp_path: Path, server: Server) -> None:
    store = tmp_path / "index"
    flags = ("--ray", "local", "--ray-actors", "2")
    # by default Ray's actors have a low priority, and would wait here for other processes
    environment = os.environ | {"RAY_worker_niceness": "0"}
    with subprocess.Popen(
        command(file, store, *flags), cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True
    ) as process:
        while not list(store.glob("indexes/bulk.*.lance/data/*")):
            assert process.poll() is None
            time.sleep(0.01)
        running = actors(process.pid)
        assert len(running) == 2
        os.kill(running[0], signal.SIGKILL)
        _, said = process.communicate(timeout=250)
    assert process.returncode == 1
    assert f"{DOCUMENTS} written, 0 unchanged, 0 repeated ids, 1 refused" in said
    again = run(file, store)
    assert f"0 written, {DOCUMENTS} unchanged, 0 repeated ids, 1 refused" in again.stderr
    held = asyncio.run(vectors(store))
    assert len(held) == DOCUMENTS
    texts = {"inputs": ["Text 3.", "Text 1499."]}
    first, last = httpx.post(f"{server.url}/embed", json=texts).json()
    assert held["d0003"] == pytest.approx(first, abs=1e-5)
    assert held["d1499"] == pytest.approx(last, abs=1e-5)
    assert held["d0003"] != pytest.approx(last, abs=1e-2)


def test_no_cluster_at_the_address(file: Path, tmp_path: Path) -> None:
    done = run(file, tmp_path / "index", "--ray", "127.0.0.1:1")
    assert done.returncode == 2
    assert "--ray 127.0.0.1:1: no cluster answers" in done.stderr
