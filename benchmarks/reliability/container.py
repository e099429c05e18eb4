"""A replica in a container of 1 GB, beside one without a limit, under the same load.

    python -m benchmarks.reliability.container --seconds 3600 --log progress.jsonl

Both embed, search, upsert, delete and train. Each request goes to one replica and then to the
other, in alternating order, so that noise of the machine meets both. The limit is that of a control
group, which counts the page cache, too; so the command must be allowed to make one (as root, or as
root of a container). It prints each aim with its figure and exits with 1 if one is missed; a line a
minute goes to the log.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from benchmarks.reliability.index_soak import held
from benchmarks.rig import documents, server
from benchmarks.rig.report import Verdict, table

# as the image sets them
ENVIRONMENT = {"MALLOC_ARENA_MAX": "2", "MALLOC_TRIM_THRESHOLD_": "65536"}
INDEX = "/indexes/soak"
# seconds between trainings
TRAINING = 600.0
# fewer answers have no p99 to compare
OFTEN = 500


class Group:
    """A control group of memory.

    Args:
        limit: bytes.
    """

    def __init__(self, limit: int) -> None:
        root = Path("/sys/fs/cgroup")
        former = (root / "memory").is_dir()
        self._folder = root / ("memory" if former else "") / f"docsplit-{os.getpid()}"
        self._folder.mkdir()
        self._ends = "memory.oom_control" if former else "memory.events"
        (self._folder / f"memory.{'limit_in_bytes' if former else 'max'}").write_text(str(limit))
        if not former:
            (self._folder / "memory.swap.max").write_text("0")

    @property
    def procs(self) -> Path:
        """A process that writes its number here enters the group."""
        return self._folder / "cgroup.procs"

    def kills(self) -> int:
        """Processes that the kernel ended for their memory."""
        lines = (line.split() for line in (self._folder / self._ends).read_text().splitlines())
        return int(dict(lines)["oom_kill"])

    def close(self) -> None:
        """Remove the group, whose processes have ended."""
        self._folder.rmdir()


class Replica:
    """A replica with its index, and what it was asked.

    Attributes:
        seconds: of the answers, by kind of request.
        failed: answers by kind of request and status, or the error that came instead.
        kept: ids of acknowledged documents that were not deleted.
        gone: ids of those that were.
        trained: acknowledged trainings.
    """

    def __init__(self, name: str, service: server.Service) -> None:
        self.name = name
        self.service = service
        self.client = httpx.Client(base_url=service.url, timeout=120)
        self.seconds: dict[str, list[float]] = defaultdict(list)
        self.failed: dict[str, int] = defaultdict(int)
        self.kept: set[str] = set()
        self.gone: set[str] = set()
        self.trained = 0

    def ask(self, kind: str, method: str, path: str, body: Any = None) -> bool:
        """Whether a request succeeded."""
        began = time.monotonic()
        try:
            answer = self.client.request(method, path, json=body)
        except httpx.TransportError as error:
            self.failed[f"{kind} {type(error).__name__}"] += 1
            return False
        if answer.is_success:
            self.seconds[kind].append(time.monotonic() - began)
        else:
            self.failed[f"{kind} {answer.status_code}"] += 1
        return answer.is_success

    def upsert(self, kind: str, texts: Mapping[str, str]) -> None:
        """Write documents."""
        given = [{"id": name, "text": text} for name, text in texts.items()]
        if self.ask(kind, "POST", f"{INDEX}/documents", {"documents": given}):
            self.kept |= texts.keys()

    def delete(self, name: str) -> None:
        """Delete a document."""
        if name in self.kept and self.ask("delete", "DELETE", f"{INDEX}/documents/{name}"):
            self.kept.remove(name)
            self.gone.add(name)

    def lost(self) -> int:
        """Acknowledged writes that a list of the index does not show, and trainings."""
        found = held(self.service.url)
        missed = self.kept - found.keys() | self.gone & found.keys()
        head = self.client.get("/classifiers/topics").json()
        trainings = len(head.get("history", [])) + ("accuracy" in head)
        return len(missed) + self.trained - trainings

    def slowest(self, kind: str, quantile: float = 0.99) -> float:
        """A quantile of the seconds of a kind of request."""
        return float(np.quantile(self.seconds[kind], quantile))


@contextmanager
def started(name: str, flags: Sequence[str], group: Group | None) -> Iterator[Replica]:
    """A replica, in a group or in none."""
    command = [sys.executable, "-m", "service", "--port={port}", *flags]
    if group is not None:
        command = ["sh", "-c", f'echo $$ > {group.procs}; exec "$@"', "sh", *command]
    with (
        tempfile.TemporaryDirectory() as work,
        server.launched(
            [*command, f"--index-path={work}/index"], "/readyz", env=ENVIRONMENT, patience=300
        ) as service,
    ):
        replica = Replica(name, service)
        replica.ask("create", "PUT", INDEX, {})
        yield replica


def load(replicas: Sequence[Replica], seconds: float, period: float, log: Path | None) -> None:
    """Ask all replicas the same for some time.

    Args:
        replicas: all of them.
        seconds: how long.
        period: seconds of a round: an embedding, a search and three upserts.
        log: gets a line a minute.
    """
    texts = documents.read(documents.PEPS, 64)
    fresh = documents.unseen(texts)
    began = time.monotonic()
    trained, logged = began - TRAINING, began
    for number in itertools.count():
        now = time.monotonic()
        if now - began > seconds:
            return
        order = replicas if number % 2 else [*reversed(replicas)]
        whole = next(fresh)
        words = whole.split()
        short = [" ".join(words[at : at + 60]) for at in (0, 60, 120)]
        for replica in order:
            replica.ask("embed", "POST", "/embed", {"inputs": whole[:2000]})
        for replica in order:
            mode = ("cosine", "words", "hybrid")[number % 3]
            query = {"index": "soak", "text": short[0][:80], "mode": mode}
            replica.ask("search", "POST", "/similar", query)
        for part, text in enumerate(short):
            for replica in order:
                replica.upsert("upsert", {f"{number}-{part}": text})
        if number % 5 == 0:
            many = {f"{number}-many-{at}": next(fresh)[:1000] for at in range(8)}
            for replica in order:
                replica.upsert("upsert of 8", many)
                replica.delete(f"{number - 5}-0")
        if now - trained >= TRAINING:
            trained = now
            given = [next(fresh)[:1500] for _ in range(60)]
            labels = [("a", "b", "c")[at % 3] for at in range(60)]
            body = {"inputs": given, "labels": labels, "background": True}
            for replica in order:
                replica.trained += replica.ask("training", "PUT", "/classifiers/topics", body)
        if log is not None and now - logged >= 60:
            logged = now
            with log.open("a") as lines:
                lines.write(json.dumps({"seconds": round(now - began)} | _state(replicas)) + "\n")
        time.sleep(max(0.0, now + period - time.monotonic()))


def _state(replicas: Sequence[Replica]) -> dict[str, Any]:
    return {
        replica.name: {
            "mb": round(replica.service.rss_mb()),
            "documents": len(replica.kept),
            "failed": dict(replica.failed),
            "caches": [
                round(replica.service.metric(f"docsplit_{name}_bytes") / 1e6)
                for name in ("cache", "index_cache")
            ],
        }
        for replica in replicas
    }


def main() -> None:
    """Load both, compare and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--period", type=float, default=1.0, help="seconds of a round of requests")
    parser.add_argument("--memory", type=int, default=10**9, help="bytes of the limited one")
    parser.add_argument("--log", type=Path)
    parser.add_argument("flags", nargs="*", help="flags of docsplit-serve, after --")
    given = parser.parse_args()
    group = Group(given.memory)
    try:
        with (
            started("limited", given.flags, group) as limited,
            started("free", given.flags, None) as free,
        ):
            load((limited, free), given.seconds, given.period, given.log)
            rows = [
                [kind, str(len(times))]
                + [f"{1000 * r.slowest(kind, q):.0f}" for q in (0.5, 0.99) for r in (limited, free)]
                for kind, times in limited.seconds.items()
            ]
            print(table(["ms", "answers", *("p50", "free"), *("p99", "free")], rows))
            peaks = (f"{r.name} {r.service.peak_rss_mb():.0f}" for r in (limited, free))
            print("largest resident memory, MB:", ", ".join(peaks))
            print("failed:", {r.name: dict(r.failed) for r in (limited, free)})
            often = [kind for kind, times in limited.seconds.items() if len(times) >= OFTEN]
            ratio = max((limited.slowest(kind) / free.slowest(kind) for kind in often), default=0.0)
            verdicts = [
                Verdict("processes that the kernel ended", group.kills(), 0, most=True),
                Verdict("failed requests", sum(limited.failed.values()), 0, most=True),
                Verdict("lost writes and trainings", limited.lost(), 0, most=True),
                Verdict("largest ratio of the p99", ratio, 1.5, most=True),
            ]
    finally:
        group.close()
    for one in verdicts:
        print(f"{one.aim}: {one.figure:.3g}, aim {one.bound:g}, {'held' if one.held else 'MISSED'}")
    sys.exit(int(not all(one.held for one in verdicts)))


if __name__ == "__main__":
    main()
