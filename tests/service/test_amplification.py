"""The worst body of 16 MB for every route: its memory is bounded, and its answer is clear."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from benchmarks.security.amplification import prepare, send
from benchmarks.security.worst_bodies import FORBIDDEN, MANY_KEYS, OBJECTS, Attack, attacks
from tests.conftest import NIGHTLY, Server, serving

# memory of one request, beyond the idle service's
MOST_BYTES = 600_000_000
# statuses that a route may return for a body that is too large
CLEAR = {200, 202, 400, 404, 409, 413, 422, 429, 504}


def by_day() -> Iterator[Attack]:
    """Yield the first attacks, fewer of the costly ones.

    Of the values that a schema forbids, /embed gets all. A field of lists gets the empty objects,
    which break most rules, and a field of objects also the one of many keys. A text of line ends
    and a cut text take long in the tokenizer, which serves all routes. So a route or two get them.
    """
    for attack in attacks():
        kind = attack.name.rpartition(": ")[2]
        many_keys = attack.name.startswith(('{"metadata"', '{"fields"'))
        later = kind in FORBIDDEN - {OBJECTS} and not (kind == MANY_KEYS and many_keys)
        later &= attack.route != "/embed"
        later |= kind == "line ends" and attack.name != kind and attack.route != "/similar"
        later |= attack.name.startswith(('{"truncate":true,"inputs"', '{"texts":["a"]'))
        if attack.first and not later:
            yield attack


ATTACKS = list(attacks() if NIGHTLY else by_day())


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("target") / "log") as running:
        prepare(running.url, {})
        yield running


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux's /proc")
@pytest.mark.parametrize("route", sorted({attack.route for attack in ATTACKS}))
def test_memory_of_the_worst_bodies_is_bounded(target: Server, route: str) -> None:
    for attack in (a for a in ATTACKS if a.route == route):
        # the work on an accepted body is stopped early: accepting it costs the memory. The work on
        # an endless word ends by itself, and costs the most.
        for seconds in (10 if "endless" in attack.name else 0.5, 10, 40):
            target.forget_peak()
            idle = target.memory()
            answer = send(target.url, attack, seconds, {})
            # on a busy machine the body itself may take longer to arrive
            if answer.status_code != 408:
                break
        peak = target.memory("VmHWM") - idle
        assert answer.status_code in CLEAR, (attack.name, answer.status_code, answer.text[:200])
        assert len(answer.content) < 1_000 or answer.is_success, attack.name
        assert peak < MOST_BYTES, (attack.name, peak)


def test_the_attacks_cover_every_route_with_a_body(target: Server) -> None:
    paths = httpx.get(f"{target.url}/openapi.json").json()["paths"]
    with_body = {
        (method.upper(), path)
        for path, operations in paths.items()
        for method, operation in operations.items()
        if "requestBody" in operation
    }
    assert with_body == {(attack.method, attack.route) for attack in ATTACKS}
