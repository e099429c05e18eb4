"""Histories of one document: requests of clients, their answers, and a model of the document."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import httpx

from tests.linearizability import NEVER, Event, linearizable

Result = Literal["done", "absent", "mismatch", "unknown"]


@dataclass(frozen=True, slots=True)
class Asked:
    """One request to one document, with its answer.

    Attributes:
        kind: "read", "write" or "delete".
        value: the value written or read; every write has a different one.
        version: the required version: None for any state, "" for no document.
        result: ``mismatch`` if a condition does not hold; ``unknown`` if no answer came.
        answered: the version in the answer.
    """

    kind: Literal["read", "write", "delete"]
    result: Result
    value: str | None = None
    version: str | None = None
    answered: str | None = None


def consistent(history: Sequence[Event[Asked]]) -> bool:
    """Whether one document with versions can give all these answers."""
    versions = _versions(history)
    if versions is None:
        return False

    known = set(versions.values())

    def has(state: str | None, version: str | None) -> bool:
        """Whether a state may have a version; a value's version may be unknown to all clients."""
        if state is None or not version:
            return state is None and not version
        return versions.get(state, version) == version and (
            state in versions or version not in known
        )

    def step(state: str | None, asked: Asked) -> Iterator[str | None]:
        meets = asked.version is None or has(state, asked.version)
        after = asked.value if asked.kind == "write" else None
        if asked.result == "unknown":
            yield after if meets else state
        elif asked.result == "mismatch":
            if has(state, asked.answered) and (asked.answered or "") != asked.version:
                yield state
        elif asked.result == "absent":
            if state is None:
                yield state
        elif asked.kind == "read":
            if state == asked.value:
                yield state
        elif meets:
            yield after

    return linearizable(history, step, None)


def _versions(history: Sequence[Event[Asked]]) -> Mapping[str, str] | None:
    """The version of each value; None if a value has two."""
    found: dict[str, str] = {}
    for event in history:
        asked = event.operation
        if (
            asked.result == "done"
            and asked.value
            and asked.answered
            and found.setdefault(asked.value, asked.answered) != asked.answered
        ):
            return None
    return found


def ask(
    client: httpx.Client,
    place: str,
    name: str,
    kind: Literal["read", "write", "delete"],
    value: str | None = None,
    version: str | None = None,
    *,
    faults: bool = False,
) -> Event[Asked]:
    """Send a request and record the answer.

    Args:
        client: sends it.
        place: URL of the index's documents.
        name: of the document.
        kind: of the request.
        value: to write.
        version: see ``Asked``.
        faults: whether the service may answer 503, after which the outcome is unknown.
    """
    began = time.monotonic()
    try:
        if kind == "read":
            answer = client.get(f"{place}/{name}")
        elif kind == "write":
            # the same text every time: nothing needs to be embedded
            document = {"id": name, "text": "a text", "title": value, "if_version": version}
            answer = client.post(place, json={"documents": [document]})
        else:
            headers = {} if version is None else {"if-match": f'"{version}"'}
            answer = client.delete(f"{place}/{name}", headers=headers)
    except httpx.TransportError:
        return Event(began, NEVER, Asked(kind, "unknown", value, version))
    if faults and answer.status_code == 503:
        return Event(began, NEVER, Asked(kind, "unknown", value, version))
    return Event(began, time.monotonic(), _asked(answer, kind, value, version))


def _asked(
    answer: httpx.Response,
    kind: Literal["read", "write", "delete"],
    value: str | None,
    version: str | None,
) -> Asked:
    if answer.status_code == 412:
        [conflict] = answer.json()["conflicts"]
        return Asked(kind, "mismatch", value, version, conflict["version"])
    if answer.status_code == 404:
        return Asked(kind, "absent", value, version)
    assert answer.status_code in (200, 204), answer.text
    if kind == "read":
        held = answer.json()
        return Asked(kind, "done", held["title"], None, held["version"])
    answered = answer.json()["versions"][0] if kind == "write" else None
    return Asked(kind, "done", value, version, answered)
