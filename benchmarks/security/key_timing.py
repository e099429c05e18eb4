"""Does the time of a refusal reveal why a key was refused?

    python -m benchmarks.security.key_timing --requests 2000

A service with 500 keys gets requests with keys that are missing, unknown, almost right, revoked
(the first and the last of the file) and over their rate, in random order on one connection. For
each kind the command prints the median and the probability that one of its refusals takes longer
than one of an unknown key, with the 95 % bootstrap interval. At .5 the two are indistinguishable.
The control is another refusal: a body that is not JSON, from a valid key. It must differ.
"""

from __future__ import annotations

import argparse
import hashlib
import http.client
import random
import secrets
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from rich.table import Table
from scipy.stats import bootstrap, mannwhitneyu

from benchmarks.rig import server

KEYS = 500
RESAMPLES = 500
REFERENCE, CONTROL = "unknown", "control: no JSON"


def main() -> None:
    """Send requests, compare and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--requests", type=int, default=2000, help="refusals per kind; default 2000"
    )
    given = parser.parse_args()
    names = [f"key-{number:03}" for number in range(KEYS)]
    tokens = {name: _token() for name in names}
    fields = {names[0]: "revoked = true", names[-1]: "revoked = true"}
    fields[names[1]] = "requests_per_second = 0.000001"
    right = tokens[names[2]]
    kinds = {
        "missing": "",
        REFERENCE: _token(),
        "almost right": right[:-1] + ("A" if right[-1] != "A" else "B"),
        "revoked, first": tokens[names[0]],
        "revoked, last": tokens[names[-1]],
        "over its rate": tokens[names[1]],
        CONTROL: right,
    }
    with tempfile.TemporaryDirectory() as work:
        path = Path(work, "keys.toml")
        path.write_text(
            "".join(
                f'[keys.{name}]\nsha256 = "{hashlib.sha256(token.encode()).hexdigest()}"\n'
                f"{fields.get(name, '')}\n"
                for name, token in tokens.items()
            )
        )
        with server.started("--keys-file", str(path), "--index-path", f"{work}/index") as service:
            took = _ask(service.url, kinds, given.requests)
    table = Table("key", "status", "median, µs", "longer than an unknown key's", "95 % interval")
    for kind, (status, seconds) in took.items():
        chance, low, high = _chance(seconds, took[REFERENCE][1])
        table.add_row(
            kind,
            str(status),
            f"{np.median(seconds) * 1e6:.0f}",
            f"{chance:.3f}",
            f"{low:.3f} to {high:.3f}",
        )
    Console(highlight=False).print(table)


def _token() -> str:
    """A token in the form of ``docsplit-keys``."""
    return f"docsplit_{secrets.token_urlsafe(32)}"


def _ask(
    url: str, kinds: dict[str, str], requests: int
) -> dict[str, tuple[int, NDArray[np.float64]]]:
    """Status and seconds of each kind's refusals."""
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port or 80)
    order = [kind for kind in kinds for _ in range(requests)]
    random.Random(0).shuffle(order)
    seconds: dict[str, list[float]] = {kind: [] for kind in kinds}
    statuses: dict[str, int] = {}
    # first empty the bucket of the key over its rate
    for kind in [*kinds, *track(order, description="asking")]:
        headers = {"content-type": "application/json"}
        if kinds[kind]:
            headers["authorization"] = f"Bearer {kinds[kind]}"
        began = time.perf_counter()
        connection.request("POST", "/embed", b"no JSON", headers)
        answer = connection.getresponse()
        answer.read()
        seconds[kind].append(time.perf_counter() - began)
        statuses[kind] = answer.status
    return {kind: (statuses[kind], np.array(found[1:])) for kind, found in seconds.items()}


def _chance(
    found: NDArray[np.float64], reference: NDArray[np.float64]
) -> tuple[float, float, float]:
    """Probability that one of ``found`` exceeds one of ``reference``, with bootstrap interval."""

    def share(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
        return float(mannwhitneyu(a, b, method="asymptotic").statistic) / (len(a) * len(b))

    interval = bootstrap(
        (found, reference),
        share,
        n_resamples=RESAMPLES,
        vectorized=False,
        method="percentile",
        rng=0,
    ).confidence_interval
    return share(found, reference), float(interval.low), float(interval.high)


if __name__ == "__main__":
    main()
