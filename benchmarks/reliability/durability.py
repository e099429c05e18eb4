"""The cost of `fsync`: 16 writers upsert only metadata, with `commit` and with `fsync`.

    python -m benchmarks.reliability.durability --seconds 10 --rounds 5

Both services run on the same disk and take turns, so other load on the machine affects both. A
writer sends one document per request. Its text does not change, so the service embeds nothing. The
command prints upserts per second of each round and the ratio of the medians.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
import time

import httpx

from benchmarks.rig import server


class Writer(threading.Thread):
    """Send upserts of one document until the time is over."""

    def __init__(self, url: str, number: int, until: float) -> None:
        super().__init__()
        self._url = url
        self._number = number
        self._until = until
        self.done = 0

    def run(self) -> None:
        """Write."""
        with httpx.Client(timeout=60) as client:
            while time.monotonic() < self._until:
                document = {
                    "id": f"d{self._number}",
                    "text": f"text {self._number}",
                    "metadata": {"turn": time.monotonic_ns()},
                }
                body = {"documents": [document]}
                client.post(f"{self._url}/indexes/x/documents", json=body).raise_for_status()
                self.done += 1


def measure(url: str, writers: int, seconds: float) -> float:
    """Upserts per second."""
    until = time.monotonic() + seconds
    threads = [Writer(url, number, until) for number in range(writers)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(thread.done for thread in threads) / (time.monotonic() - began)


def main() -> None:
    """Measure in turn, and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--writers", type=int, default=16)
    parser.add_argument("--folder", help="folder of the stores (default: a temporary folder)")
    given = parser.parse_args()
    rates: dict[str, list[float]] = {"commit": [], "fsync": []}
    with tempfile.TemporaryDirectory(dir=given.folder) as work:
        flags = {kind: (f"--index-path={work}/{kind}", f"--durability={kind}") for kind in rates}
        with server.started(*flags["commit"]) as one, server.started(*flags["fsync"]) as two:
            urls = {"commit": one.url, "fsync": two.url}
            for url in urls.values():
                httpx.put(f"{url}/indexes/x", json={}, timeout=60).raise_for_status()
                measure(url, given.writers, 1)
            for turn in range(given.rounds):
                for kind in rates if turn % 2 else reversed(rates):
                    rates[kind].append(measure(urls[kind], given.writers, given.seconds))
                print(f"{turn}: " + ", ".join(f"{k} {v[-1]:.0f}/s" for k, v in rates.items()))
    medians = {kind: statistics.median(values) for kind, values in rates.items()}
    print(f"fsync / commit: {medians['fsync'] / medians['commit']:.2f}")


if __name__ == "__main__":
    main()
