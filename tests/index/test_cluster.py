"""``docsplit-index --ray``: actors of a cluster embed and write documents."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.bulk.loader import BATCH_DOCUMENTS
from service.index.storage.database import connect, table_names
from tests.conftest import NIGHTLY, ROOT, Server
from tests.index.test_bulk import command, run, write

DOCUMENTS = 1500
LOGS = ("--log-level", "info", "--log-format", "json")


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
    assert found.num_rows == len(set(found["id"].to_pylist()))
    return dict(zip(found["id"].to_pylist(), found["vector"].to_pylist(), strict=True))


def written(said: str) -> int:
    """Documents that a run wrote; every other one was there."""
    found = re.search(r"(\d+) written, (\d+) unchanged, 0 repeated ids, 1 refused", said)
    assert found, said
    assert int(found[1]) + int(found[2]) == DOCUMENTS
    return int(found[1])


def check(file: Path, store: Path, server: Server) -> None:
    """Check that an index has every document once, with the right vectors."""
    again = run(file, store)
    assert f"0 written, {DOCUMENTS} unchanged, 0 repeated ids, 1 refused" in again.stderr
    held = asyncio.run(vectors(store))
    assert len(held) == DOCUMENTS
    texts = {"inputs": ["Text 3.", "Text 1499."]}
    first, last = httpx.post(f"{server.url}/embed", json=texts).json()
    assert held["d0003"] == pytest.approx(first, abs=1e-5)
    assert held["d1499"] == pytest.approx(last, abs=1e-5)
    assert held["d0003"] != pytest.approx(last, abs=1e-2)


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
    # the lost actor wrote at most the two batches that it had
    assert written(said) >= DOCUMENTS - 2 * BATCH_DOCUMENTS
    check(file, store, server)


@pytest.mark.skipif(not NIGHTLY, reason="starts a cluster: nightly")
def test_more_actors_than_fit_are_not_waited_for(file: Path, tmp_path: Path) -> None:
    flags = ("--ray", "local", "--threads", str(os.cpu_count()), "--ray-actors", "9", *LOGS)
    done = subprocess.run(
        command(file, tmp_path / "index", *flags),
        cwd=ROOT,
        env=os.environ | {"RAY_worker_niceness": "0"},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert '"actors": 1' in done.stderr
    assert written(done.stderr) == DOCUMENTS


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Three nodes with room for an actor each."""
    for name, value in (("RAY_USAGE_STATS_ENABLED", "0"), ("RAY_worker_niceness", "0")):
        monkeypatch.setenv(name, value)
    from ray.cluster_utils import Cluster

    room = {"num_cpus": 1, "object_store_memory": 80_000_000}
    made = Cluster(initialize_head=True, head_node_args={**room, "include_dashboard": False})
    for _ in range(2):
        made.add_node(**room)
    made.wait_for_nodes()
    yield made
    made.shutdown()


@pytest.mark.skipif(not NIGHTLY, reason="starts a cluster: nightly")
def test_a_lost_node_loses_nothing(
    cluster: Any, file: Path, tmp_path: Path, server: Server
) -> None:
    store = tmp_path / "index"
    # there is no room for a third actor once a node is lost
    flags = ("--ray", cluster.address, "--ray-actors", "3", *LOGS)
    with subprocess.Popen(
        command(file, store, *flags), cwd=ROOT, stderr=subprocess.PIPE, text=True
    ) as process:
        while not list(store.glob("indexes/bulk.*.lance/data/*")):
            assert process.poll() is None
            time.sleep(0.01)
        cluster.remove_node(sorted(cluster.worker_nodes, key=str)[0], allow_graceful=False)
        _, said = process.communicate(timeout=250)
    assert process.returncode == 1
    assert '"writing": true' in said
    assert written(said) >= DOCUMENTS - 2 * BATCH_DOCUMENTS
    check(file, store, server)


# what a node on another machine may lack
LACKING = """
import sys
from service.bulk import cluster
from service.bulk.__main__ import main

started = cluster.on_cluster
lacking = {sys.argv.pop(1): sys.argv.pop(1)}

def on_cluster(address, actors, settings):
    held = {name: [value] if name == "bundle" else value for name, value in lacking.items()}
    return started(address, actors, settings.model_copy(update=held))

cluster.on_cluster = on_cluster
sys.exit(main())
"""


def lacking(
    name: str, place: Path, file: Path, store: Path, cluster: Any
) -> subprocess.CompletedProcess[str]:
    """A run with actors for which a setting names an empty place."""
    flags = ("--ray", cluster.address, "--ray-actors", "2", *LOGS)
    start = [sys.executable, "-c", LACKING, name, str(place)]
    return subprocess.run(
        [*start, *command(file, store, *flags)[3:]],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.skipif(not NIGHTLY, reason="starts a cluster: nightly")
def test_nodes_without_the_store_only_embed(
    cluster: Any, file: Path, tmp_path: Path, server: Server
) -> None:
    store = tmp_path / "index"
    done = lacking("index_path", tmp_path / "nothing", file, store, cluster)
    assert '"writing": false' in done.stderr
    assert written(done.stderr) == DOCUMENTS
    assert not (tmp_path / "nothing").exists()
    check(file, store, server)


@pytest.mark.skipif(not NIGHTLY, reason="starts a cluster: nightly")
def test_a_node_without_the_bundle_is_named(cluster: Any, file: Path, tmp_path: Path) -> None:
    done = lacking("bundle", tmp_path / "nothing", file, tmp_path / "index", cluster)
    assert done.returncode == 2
    assert "docsplit-index: on a node of the cluster: " in done.stderr
    assert str(tmp_path / "nothing") in done.stderr
    assert "Traceback" not in done.stderr


def test_no_cluster_at_the_address(file: Path, tmp_path: Path) -> None:
    done = run(file, tmp_path / "index", "--ray", "127.0.0.1:1")
    assert done.returncode == 2
    assert "--ray 127.0.0.1:1: no cluster answers" in done.stderr
