"""Latency of other clients while somebody uploads hostile files without a pause.

    python -m benchmarks.files.hostile --seconds 60 --rounds 3

One client sends short texts to ``/embed``, first without others, then beside a client that uploads
ordinary files, then beside one that uploads ``benchmarks.files.worst_files``. The rounds take
turns. The command prints the latencies, the answers to the uploads, and the memory of the service
and of its readers.
"""

from __future__ import annotations

import argparse
import re
import statistics
import tempfile
import threading
import time
from collections import Counter
from itertools import cycle
from pathlib import Path

import httpx

from benchmarks.files.worst_files import FILES, WORST
from benchmarks.rig.server import Service, started

Named = tuple[str, bytes]


def main() -> None:
    """Start a service, upload, measure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60, help="of each part of a round")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    hostile = [(f"{n}{end}", make()) for n, (end, make) in enumerate(WORST.values())]
    ordinary = [(f"{n}{end}", content) for n, (end, content) in enumerate(FILES.items())]
    latencies: dict[str, list[float]] = {}
    answers: dict[str, Counter[str]] = {}
    most = 0.0
    with (
        tempfile.TemporaryDirectory() as work,
        started(f"--index-path={work}/index", "--cache-bytes=0") as service,
    ):
        httpx.put(f"{service.url}/indexes/files", json={}).raise_for_status()
        measured(service, 2)
        for _ in range(given.rounds):
            for name, files in (("quiet", []), ("ordinary", ordinary), ("hostile", hostile)):
                over = threading.Event()
                counted = answers.setdefault(name, Counter())
                arguments = (service.url, files, over, counted)
                uploader = threading.Thread(target=uploading, args=arguments)
                uploader.start()
                found, memory = measured(service, given.seconds)
                latencies.setdefault(name, []).extend(found)
                most = max(most, memory)
                over.set()
                uploader.join()
    for name, found in latencies.items():
        cut = statistics.quantiles(found, n=100)
        print(
            f"{name}: {len(found)} texts, p50 {1e3 * cut[49]:.1f} ms, p99 {1e3 * cut[98]:.1f} ms; "
            f"{dict(answers[name])}"
        )
    print(f"service and readers at most {most:.0f} MB")


def measured(service: Service, seconds: float) -> tuple[list[float], float]:
    """Latencies of short texts in seconds, and the largest memory of all processes in MB."""
    found, most = [], 0.0
    end = time.monotonic() + seconds
    with httpx.Client(timeout=60) as client:
        while time.monotonic() < end:
            began = time.monotonic()
            body = {"inputs": f"a short text that is new, {began}"}
            client.post(f"{service.url}/embed", json=body).raise_for_status()
            found.append(time.monotonic() - began)
            time.sleep(0.02)
            if len(found) % 10 == 0:
                most = max(most, _memory(service.pid))
    return found, most


def _memory(process: int) -> float:
    """Resident memory of a process and its children, in MB."""
    folder = Path(f"/proc/{process}")
    try:
        held = re.search(r"VmRSS:\s+(\d+) kB", (folder / "status").read_text())
        below = [path.read_text().split() for path in folder.glob("task/*/children")]
    except OSError:
        # it has just ended
        return 0.0
    own = int(held[1]) / 1e3 if held else 0.0
    return own + sum(_memory(int(child)) for children in below for child in children)


def uploading(url: str, files: list[Named], over: threading.Event, answers: Counter[str]) -> None:
    """Upload one file after the other, each when the former one's job has ended."""
    with httpx.Client(base_url=url, timeout=60) as client:
        for name, content in cycle(files):
            answer = client.post("/indexes/files/files", files=[("files", (name, content))])
            answers[str(answer.status_code)] += 1
            if answer.status_code != 202:
                time.sleep(0.1)
                continue
            path = answer.headers["location"]
            while not over.is_set() and client.get(path).json()["ended"] is None:
                time.sleep(0.05)
            if over.is_set():
                client.delete(path)
                return


if __name__ == "__main__":
    main()
