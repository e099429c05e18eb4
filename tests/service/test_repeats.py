"""Requests that repeat byte by byte."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from service.embedding.cache.answers import _OVERHEAD, Answer, Answers
from service.precedence import LARGE
from tests.conftest import Server

TEXT = "A caisson is a watertight chamber in which men dig below the river's bed."


def windows(server: Server, source: str) -> float:
    return server.metric(f'docsplit_windows_total{{source="{source}"}}')


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/embed", {"inputs": [TEXT, "On piers."]}),
        ("/embed", {"inputs": TEXT + " Twice.", "encoding_format": "base64"}),
        ("/v1/embeddings", {"input": TEXT, "model": "docsplit"}),
        # large enough for a thread to hash it
        ("/embed", {"inputs": TEXT + " " * LARGE}),
    ],
)
def test_a_repeated_request_gets_the_same_answer_from_memory(
    server: Server, path: str, body: dict[str, Any]
) -> None:
    if "model" in body:
        body = body | {"model": httpx.get(f"{server.url}/v1/models").json()["data"][0]["id"]}
    first = httpx.post(f"{server.url}{path}", json=body)
    before = windows(server, "answer"), windows(server, "process")
    again = httpx.post(f"{server.url}{path}", json=body)
    assert first.status_code == again.status_code == 200
    assert again.content == first.content
    assert again.headers["x-cache"] == "hit"
    assert again.headers["x-compute-tokens"] == first.headers["x-compute-tokens"]
    assert again.headers["x-request-id"] != first.headers["x-request-id"]
    inputs = body.get("inputs", [TEXT])
    asked = len(inputs) if isinstance(inputs, list) else 1
    assert windows(server, "answer") == before[0] + asked
    assert windows(server, "process") == before[1]
    # the control: another body with the same meaning is computed, and gets the same answer
    spaced = httpx.post(
        f"{server.url}{path}",
        content=json.dumps(body, indent=1),
        headers={"content-type": "application/json"},
    )
    assert spaced.json() == first.json()
    assert windows(server, "process") > before[1]


@pytest.mark.parametrize(
    "body",
    [{"inputs": TEXT, "windows": True}, {"inputs": ""}, {"inputs": TEXT, "dimensions": 100_000}],
)
def test_answers_about_the_cache_or_faults_are_not_repeated(
    server: Server, body: dict[str, Any]
) -> None:
    before = windows(server, "answer")
    answers = [httpx.post(f"{server.url}/embed", json=body) for _ in range(3)]
    assert windows(server, "answer") == before
    assert len({answer.status_code for answer in answers}) == 1


def test_answers_are_bounded_and_the_least_used_are_evicted() -> None:
    answers = Answers(20 * (_OVERHEAD + 100))
    held = Answer({"type": "http.response.start", "status": 200, "headers": []}, b"x" * 100, {})
    answers.put(b"huge", Answer(held.start, b"x" * 10_000, {}))
    assert len(answers) == 0
    for number in range(30):
        answers.put(bytes([number]), held)
        answers.get(bytes([0]))
    assert len(answers) == 20
    assert answers.held_bytes == 20 * (_OVERHEAD + 100)
    assert answers.get(bytes([0])) is held
    assert answers.get(bytes([1])) is None


def test_parts_of_a_key_do_not_run_into_each_other() -> None:
    assert Answers.key(b"a", b"bc") != Answers.key(b"ab", b"c")
