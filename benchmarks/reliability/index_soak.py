"""Two replicas on one store with concurrent writers of the same ids: check that no id is
duplicated or lost.

    python -m benchmarks.reliability.index_soak --seconds 60

Each writer sends batches to the replicas in turn. A batch has ids that all writers share, with an
increasing number, and ids of its own. The next request to the other replica must find every
acknowledged document. At the end every id must exist exactly once. The text of a shared id must be
one that a writer's last acknowledged batch contains. Otherwise the command exits with 1.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections import Counter
from typing import Any

import httpx

from benchmarks.rig import server

SHARED = 20
OWN = 5


class Writer(threading.Thread):
    """Writes until the time is over.

    Args:
        number: number of the writer.
        urls: addresses of the replicas.
        until: end time on the clock of ``time.monotonic``.
    """

    def __init__(self, number: int, urls: tuple[str, str], until: float) -> None:
        super().__init__()
        self._number = number
        self._urls = urls
        self._until = until
        self.own: list[str] = []
        self.last: dict[str, str] = {}
        self.unseen: list[str] = []
        self.writes = 0

    def run(self) -> None:
        """Write to one replica and read from the other."""
        with httpx.Client(timeout=120) as client:
            while time.monotonic() < self._until:
                here, there = self._urls if self.writes % 2 else reversed(self._urls)
                mark = f"writer {self._number} round {self.writes}"
                shared = {f"shared-{i}": f"shared {i}, {mark}" for i in range(SHARED)}
                own = {f"own-{self._number}-{self.writes}-{i}": f"{mark} {i}" for i in range(OWN)}
                documents = [{"id": k, "text": v} for k, v in (shared | own).items()]
                path = "/indexes/soak/documents"
                client.post(f"{here}{path}", json={"documents": documents}).raise_for_status()
                name = next(iter(own))
                if client.get(f"{there}{path}/{name}").status_code != 200:
                    self.unseen.append(name)
                self.own += own
                self.last |= shared
                self.writes += 1


def main() -> None:
    """Write, compare and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--writers", type=int, default=4)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        flags = (f"--index-path={work}/index", "--threads=1")
        with server.started(*flags) as one, server.started(*flags) as two:
            httpx.put(f"{one.url}/indexes/soak", json={}, timeout=60).raise_for_status()
            until = time.monotonic() + given.seconds
            writers = [Writer(n, (one.url, two.url), until) for n in range(given.writers)]
            for writer in writers:
                writer.start()
            for writer in writers:
                writer.join()
            found = [held(replica.url) for replica in (one, two)]
            shared = {
                name: httpx.get(f"{two.url}/indexes/soak/documents/{name}").json()["text"]
                for name in writers[0].last
            }
    sys.exit(_report(writers, found, shared))


def held(url: str) -> Counter[str]:
    """How often each id is in the index of a replica."""
    held: Counter[str] = Counter()
    after = ""
    while True:
        path = f"{url}/indexes/soak/documents"
        page: Any = httpx.get(path, params={"after": after, "limit": 1000}, timeout=60).json()
        held.update(document["id"] for document in page["documents"])
        if page["next"] is None:
            return held
        after = page["next"]


def _report(writers: list[Writer], found: list[Counter[str]], shared: dict[str, str]) -> int:
    expected = {name for writer in writers for name in (*writer.own, *writer.last)}
    doubled = sum(count > 1 for held in found for count in held.values())
    lost = sum(name not in held for held in found for name in expected)
    strange = sum(len(held.keys() - expected) for held in found)
    stale = sum(text not in {w.last[name] for w in writers} for name, text in shared.items())
    unseen = sum(len(writer.unseen) for writer in writers)
    writes = sum(writer.writes for writer in writers)
    print(
        f"{writes} acknowledged writes of {SHARED + OWN} documents by {len(writers)} writers, "
        f"{len(expected)} ids: {doubled} doubled, {lost} lost, {strange} unknown, {stale} stale, "
        f"{unseen} not seen by the other replica at once"
    )
    return int(any((doubled, lost, strange, stale, unseen)))


if __name__ == "__main__":
    main()
