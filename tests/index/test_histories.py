"""A document behaves as if requests came one after the other, through any replica."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import httpx
import pytest

from tests.conftest import NIGHTLY, Server, serving
from tests.index.conftest import call
from tests.index.histories import Asked, ask, consistent
from tests.linearizability import NEVER, Event

DOCUMENTS = ("a", "b", "c")
CLIENTS = 6
# of each client; enough for every possible result, however slow the machine is
TURNS = 50 if NIGHTLY else 24


KINDS: tuple[Literal["read", "write", "delete"], ...] = ("read", "write", "delete")


def history(*asked: tuple[float, float, Asked]) -> list[Event[Asked]]:
    return [Event(*one) for one in asked]


def wrote(value: str, version: str | None = None) -> Asked:
    return Asked("write", "done", value, version, f"v{value}")


def read(value: str) -> Asked:
    return Asked("read", "done", value, None, f"v{value}")


ABSENT = Asked("read", "absent")
DELETED = Asked("delete", "done")

# name → history, whether one document can have it
KNOWN = {
    "one after the other": (history((0, 1, wrote("x")), (2, 3, read("x"))), True),
    "a stale read": (
        history((0, 1, wrote("x")), (2, 3, wrote("y")), (4, 5, read("x"))),
        False,
    ),
    "a read during a write sees either state": (
        history((0, 1, wrote("x")), (2, 9, wrote("y")), (3, 4, read("x")), (5, 6, read("y"))),
        True,
    ),
    "a later read sees an older state": (
        history((0, 1, wrote("x")), (2, 9, wrote("y")), (3, 4, read("y")), (5, 6, read("x"))),
        False,
    ),
    "a value that no client wrote": (history((0, 1, wrote("x")), (2, 3, read("z"))), False),
    "a lost write": (history((0, 1, wrote("x")), (2, 3, ABSENT)), False),
    "a deleted document comes back": (
        history((0, 1, wrote("x")), (2, 3, DELETED), (4, 5, read("x"))),
        False,
    ),
    "one of two conditional writes wins": (
        history(
            (0, 1, wrote("x")),
            (2, 9, wrote("y", "vx")),
            (2, 9, Asked("write", "mismatch", "z", "vx", "vy")),
        ),
        True,
    ),
    "both of two conditional writes win": (
        history((0, 1, wrote("x")), (2, 9, wrote("y", "vx")), (2, 9, wrote("z", "vx"))),
        False,
    ),
    "both of two creations win": (
        history((0, 9, wrote("x", "")), (0, 9, wrote("y", ""))),
        False,
    ),
    "a mismatch that names an impossible version": (
        history(
            (0, 1, wrote("x")),
            (2, 3, wrote("y")),
            (4, 5, Asked("delete", "mismatch", None, "vz", "vx")),
        ),
        False,
    ),
    "a mismatch although the version was current": (
        history((0, 1, wrote("x")), (2, 3, Asked("delete", "mismatch", None, "vx", "vx"))),
        False,
    ),
    "an unanswered write shows later": (
        history(
            (0, 1, wrote("x")),
            (2, NEVER, Asked("write", "unknown", "y")),
            (4, 5, read("x")),
            (6, 7, read("y")),
        ),
        True,
    ),
    "an unanswered write never shows": (
        history((0, 1, wrote("x")), (2, NEVER, Asked("write", "unknown", "y")), (4, 5, read("x"))),
        True,
    ),
    "an unanswered write takes effect twice": (
        history(
            (0, 1, wrote("x")),
            (2, NEVER, Asked("write", "unknown", "y")),
            (3, 4, read("y")),
            (5, 6, wrote("z")),
            (7, 8, read("y")),
        ),
        False,
    ),
    "an unanswered write shows only by its version": (
        history(
            (0, 1, wrote("x")),
            (2, NEVER, Asked("write", "unknown", "y")),
            (4, 5, Asked("delete", "mismatch", None, "vx", "vy")),
        ),
        True,
    ),
    "a deletion that no conditional write has seen": (
        history((0, 1, wrote("x")), (2, 9, DELETED), (3, 8, wrote("y", "vx")), (10, 11, read("y"))),
        False,
    ),
    "a value with two versions": (
        history((0, 1, wrote("x")), (2, 3, Asked("read", "done", "x", None, "v2"))),
        False,
    ),
}


@pytest.mark.parametrize("name", KNOWN)
def test_the_checker_accepts_only_possible_histories(name: str) -> None:
    events, possible = KNOWN[name]
    assert consistent(events) is possible


def test_the_checker_finds_one_wrong_answer_among_many() -> None:
    right = [Event(i, i + 2.5, wrote(str(i))) for i in range(200)]
    assert consistent(right)
    assert not consistent([*right, Event(150.0, 150.5, read("3"))])


class Client(threading.Thread):
    """Writes, reads and deletes some documents."""

    def __init__(
        self, number: int, places: Sequence[str], turns: int, *, faults: bool = False
    ) -> None:
        super().__init__()
        self._number = number
        self._places = list(places)
        self._turns = turns
        self._faults = faults
        self.events: dict[str, list[Event[Asked]]] = {name: [] for name in DOCUMENTS}
        self.failed: Exception | None = None

    def run(self) -> None:
        try:
            with httpx.Client(timeout=60) as client:
                self._run(client)
        except Exception as error:  # noqa: BLE001 the test raises it
            self.failed = error

    def _run(self, client: httpx.Client) -> None:
        draw = random.Random(self._number)
        known = dict.fromkeys(DOCUMENTS, "")
        for turn in range(self._turns):
            name, place = draw.choice(DOCUMENTS), draw.choice(self._places)
            version = draw.choice([None, known[name], known[name]])
            value = f"{self._number}-{turn}"
            kind = draw.choices(KINDS, [3, 5, 2])[0]
            text = value if kind == "write" else None
            wanted = {"read": None, "write": version, "delete": version or None}[kind]
            event = ask(client, place, name, kind, text, wanted, faults=self._faults)
            asked = event.operation
            if asked.result == "unknown" and not self._faults:
                self._places.remove(place)
            if kind != "read" or asked.result != "unknown":
                self.events[name].append(event)
            known[name] = asked.answered or ""


def test_documents_are_linearizable_through_two_replicas_and_a_kill(
    tmp_path: Path, light: tuple[str, ...]
) -> None:
    with (
        serving(tmp_path / "log", *light) as killed,
        serving(tmp_path / "log2", "--index-path", str(tmp_path / "index"), *light) as other,
    ):
        call(other, "PUT", "/indexes/register", {}, status=201)
        events = _histories((killed, other))
    results = {
        (event.operation.kind, event.operation.result, event.operation.version is not None)
        for history in events.values()
        for event in history
    }
    # every possible result occurred
    assert results >= {
        ("write", "done", False),
        ("write", "done", True),
        ("write", "mismatch", True),
        ("read", "done", False),
        ("delete", "done", True),
        ("delete", "mismatch", True),
    }
    for name, history in events.items():
        assert consistent(history), (name, sorted(history, key=lambda event: event.call))


def _histories(servers: tuple[Server, Server]) -> dict[str, list[Event[Asked]]]:
    places = [f"{server.url}/indexes/register/documents" for server in servers]
    clients = [Client(number, places, TURNS) for number in range(CLIENTS)]
    for client in clients:
        client.start()
    while any(client.is_alive() for client in clients) and _answered(clients) < CLIENTS * TURNS / 2:
        time.sleep(0.01)
    servers[0].process.send_signal(signal.SIGKILL)
    for client in clients:
        client.join()
    for client in clients:
        if client.failed is not None:
            raise client.failed
    return {name: [e for client in clients for e in client.events[name]] for name in DOCUMENTS}


def _answered(clients: Sequence[Client]) -> int:
    return sum(len(events) for client in clients for events in client.events.values())
