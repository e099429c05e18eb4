"""Check that acknowledged writes survive `kill -9` and torn manifests.

    python -m benchmarks.reliability.kills --kills 40 --writes 1000

Four writers upsert single documents, both new and existing ones. The command repeatedly kills the
service while they write. Before every second start it tears the newest manifests as a power failure
would: it empties them, cuts them or fills them with zeros. It tears only versions without
acknowledged writes. If there is none, it first makes one more commit. After each start every
acknowledged document must exist with its version and metadata. The command prints a line for each
round and ends with status 1 if a document is missing. `--careless` is the control: it tears a
version with an acknowledged write, so a document must be missing.
"""

from __future__ import annotations

import argparse
import random
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import lancedb

from benchmarks.rig import server
from service.index.storage import recovery

WRITERS = 4
FLAGS = ("--calibrate=0", "--streams=2", "--durability=fsync")
STARTED = partial(server.started, patience=300)
TEARS = {
    "emptied": lambda _: b"",
    "cut": lambda content: content[: len(content) // 2],
    "zeros": lambda content: bytes(len(content)),
}


@dataclass
class Written:
    """The requests of the writers.

    Attributes:
        acknowledged: versions and numbers of the writes, by id.
        uncertain: numbers of writes that got no answer, by id.
    """

    acknowledged: dict[str, tuple[str, int]] = field(default_factory=dict)
    uncertain: dict[str, int] = field(default_factory=dict)
    writes: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, name: str, version: str, number: int) -> None:
        """Record an acknowledged write."""
        with self.lock:
            self.acknowledged[name] = (version, number)
            self.uncertain.pop(name, None)
            self.writes += 1


@dataclass
class Outcome:
    """The result after all kills. ``lost`` names each document that is missing or too old."""

    writes: int
    kills: int
    torn: int
    lost: list[str]


def write(url: str, writer: int, since: int, written: Written) -> None:
    """Upsert one document after the other until the service ends."""
    number = since
    draw = random.Random(since + writer)
    with httpx.Client(timeout=300) as client:
        while True:
            number += 1
            with written.lock:
                own = [name for name in written.acknowledged if name.startswith(f"{writer}.")]
                # each third write replaces a document
                name = f"{writer}.{number}" if number % 3 or not own else draw.choice(own)
                written.uncertain[name] = number
            document = {"id": name, "text": f"text {name}", "metadata": {"number": number}}
            body = {"documents": [document]}
            try:
                answer = client.post(f"{url}/indexes/x/documents", json=body)
                answer.raise_for_status()
            except httpx.HTTPError:
                return
            written.note(name, answer.json()["versions"][0], number)


def lost(url: str, written: Written) -> list[str]:
    """Acknowledged documents that are missing or differ; also resolves uncertain writes."""
    held: dict[str, dict[str, Any]] = {}
    after: str | None = ""
    with httpx.Client(base_url=url, timeout=300) as client:
        while after is not None:
            path = f"/indexes/x/documents?limit=1000&after={after}"
            page = server.call(client, "GET", path)
            held |= {document["id"]: document for document in page["documents"]}
            after = page["next"]
    found = []
    for name, (version, number) in list(written.acknowledged.items()):
        there = held.get(name, {"version": None, "metadata": {"number": None}})
        now = there["metadata"]["number"]
        if now is not None and now == written.uncertain.get(name):
            written.acknowledged[name] = (there["version"], now)
        elif (there["version"], now) != (version, number):
            found.append(f"{name}: write {number} of version {version}, found {now}")
    written.uncertain.clear()
    return found


def holds(table: lancedb.table.Table, version: int, written: Written) -> bool:
    """Whether a version of the table holds every acknowledged write or a later one."""
    table.checkout(version)
    rows = table.search().select(["id", "updated"]).limit(None).to_arrow()
    held = dict(zip(rows["id"].to_pylist(), rows["updated"].to_pylist(), strict=True))
    return all(
        held.get(name, 0) >= int(version, 16) for name, (version, _) in written.acknowledged.items()
    )


def tear(store: Path, how: str, written: Written, *, careless: bool) -> int:
    """Tear the versions without acknowledged writes; returns their number."""
    [folder] = (store / "indexes").glob("x.*.lance")
    table = lancedb.connect(store / "indexes").open_table(folder.stem)
    paths = recovery.versions(folder)
    torn = []
    for version, path in paths.items():
        needed = version - 1 not in paths or not holds(table, version - 1, written)
        if careless or not needed:
            torn.append(path)
        if needed:
            break
    newest = max(paths)
    if not torn:
        torn = [paths[newest].with_name(f"{2**64 - 2 - newest:020}.manifest")]
        torn[0].write_bytes(paths[newest].read_bytes())
    # no acknowledged write depends on a lease
    leases = recovery.versions(store / "leases" / "leases.lance")
    for path in [*torn, *list(leases.values())[:1]]:
        path.write_bytes(TEARS[how](path.read_bytes()))
    return len(torn)


def run(
    folder: Path,
    *,
    kills: int,
    writes: int,
    careless: bool = False,
    start: Callable[..., AbstractContextManager[server.Service]] = STARTED,
) -> Outcome:
    """Write and kill in turn, with a check after each start by ``start``."""
    draw = random.Random(0)
    written = Written()
    torn = 0
    missing: list[str] = []
    flags = (f"--index-path={folder}", *FLAGS)
    for kill in range(kills + 1):
        with start(*flags) as service:
            if not kill:
                httpx.put(f"{service.url}/indexes/x", json={}, timeout=60).raise_for_status()
            missing += lost(service.url, written)
            if missing or kill == kills:
                break
            wanted = writes * (kill + 1) // kills
            since = kill * 1_000_000
            threads = [
                threading.Thread(target=write, args=(service.url, number, since, written))
                for number in range(WRITERS)
            ]
            for thread in threads:
                thread.start()
            while written.writes < wanted and any(thread.is_alive() for thread in threads):
                time.sleep(0.001)
            time.sleep(draw.uniform(0, 0.05))
            service.send(signal.SIGKILL)
            for thread in threads:
                thread.join()
        done = f"{kill + 1}: {written.writes} acknowledged, killed"
        if kill % 2 or careless:
            how = list(TEARS)[kill // 2 % len(TEARS)]
            number = tear(folder, how, written, careless=careless)
            torn += number
            done += f", {number} manifests {how}"
        print(done)
    return Outcome(written.writes, kills, torn, missing)


def main() -> int:
    """Run and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--writes", type=int, default=1000)
    parser.add_argument("--careless", action="store_true", help="run the control")
    parser.add_argument("--folder", help="folder of the store (default: a temporary folder)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as work:
        found = run(Path(work), kills=given.kills, writes=given.writes, careless=given.careless)
    print(
        f"{found.writes} acknowledged writes, {found.kills} kills, {found.torn} torn manifests: "
        f"{len(found.lost)} lost"
    )
    for line in found.lost:
        print(line)
    return 1 if found.lost else 0


if __name__ == "__main__":
    raise SystemExit(main())
