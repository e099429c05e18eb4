"""Large bodies: their values are counted, and a thread parses and validates them in short steps."""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
import threading
import time
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.routing import iter_route_contexts
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import BaseModel, field_validator
from starlette.types import Receive, Scope, Send

from service import precedence
from service.server import routes
from service.server.bodies import large
from tests.conftest import Server

# possible content of a string between its quotes, valid or not
INSIDE = st.lists(
    st.sampled_from([*'a"\\/bnu0dDeE8\n\x00é漢😀\ud83d', "\\u", "\\ud83d\\ude00", "\\\\", "\\n"]),
    max_size=80,
).map("".join)
PADDING = b" " * precedence.LARGE


def outcome(call: Any, body: bytes) -> Any:
    """The value as JSON, including NaN and half surrogate pairs, or the error."""
    try:
        return json.dumps(call(body))
    except json.JSONDecodeError as error:
        return error.msg, error.pos
    except ValueError as error:
        return type(error)


def same(body: bytes) -> bool:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(large, "STEP", 16)
        return bool(outcome(large.parse, body) == outcome(json.loads, body))


@given(INSIDE)
@example("\\ud83d" * 9)
@example("\\" * 41)
@example("a" * 15 + "\\ud83d\\ude00")
@example("a" * 20 + "\n")
def test_strings_are_parsed_like_the_json_module(inside: str) -> None:
    assert same(b'["' + inside.encode("utf-8", "surrogatepass") + b'", 1]')


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | INSIDE,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(INSIDE, inner, max_size=3),
    max_leaves=12,
)


@given(VALUES, st.booleans(), st.integers(0, 200))
def test_values_are_parsed_like_the_json_module(value: Any, escaped: bool, end: int) -> None:
    body = json.dumps(value, ensure_ascii=escaped).encode("utf-8", "surrogatepass")
    assert same(body)
    assert same(body[:end])


def test_a_cut_that_divides_an_escape_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large, "_CHARACTERS", re.compile('[^"]*'))
    assert not same(b'"' + b"a" * 13 + b'\\ud83d\\ude00"')


@pytest.mark.parametrize("unit", ["!", "漢", "\\u6f22", "\\\\", "a, [b]: "])
def test_no_step_reads_more_than_its_characters(unit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    scan = json.decoder.scanstring  # type: ignore[attr-defined]

    def noted(text: str, at: int, strict: bool) -> tuple[str, int]:
        part, end = scan(text, at, strict)
        read.append(end - at)
        return part, end

    monkeypatch.setattr(large, "scanstring", noted)
    text = unit * (1_000_000 // len(unit))
    body = f'{{"inputs": "{text}"}}'.encode()
    assert large.parse(body) == json.loads(body)
    assert max(read) <= large.STEP + 1
    assert sum(read) >= len(text)


class Note(BaseModel):
    """A body that records which threads validate it."""

    text: str
    threads: list[str] = []

    @field_validator("threads", mode="before")
    @classmethod
    def _noted(cls, value: list[str]) -> list[str]:
        return [*value, threading.current_thread().name]


async def test_the_event_loop_leaves_large_bodies_to_a_thread() -> None:
    app = FastAPI()
    app.router.route_class = large.BoundedRoute

    @app.post("/")
    async def note(body: Note) -> list[str]:
        return body.threads

    async def timed(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, "docsplit.deadline": time.monotonic() + 60}, receive, send)

    transport = httpx.ASGITransport(app=timed)
    async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
        texts = ["a", "a" * precedence.LARGE]
        answers = [await client.post("/", json={"text": t, "threads": []}) for t in texts]
    assert [answer.json() for answer in answers] == [
        [threading.current_thread().name],
        ["bodies_0"],
    ]


def test_every_route_ends_at_its_deadline_and_leaves_large_bodies_to_a_thread() -> None:
    names = [m.name for m in pkgutil.walk_packages(routes.__path__, f"{routes.__name__}.")]
    # the routes of the status wait for nothing
    modules = [importlib.import_module(name) for name in names if not name.endswith(".status")]
    found = [
        context
        for module in modules
        for context in iter_route_contexts(getattr(getattr(module, "router", None), "routes", ()))
    ]
    assert len(found) > 50
    wrong = [c.path for c in found if not isinstance(c.original_route, large.BoundedRoute)]
    assert wrong == []


@pytest.mark.parametrize("path", ["/embed", "/", "/similar", "/indexes/none/documents"])
@pytest.mark.parametrize(
    "body",
    [
        b'{"inputs": "A text."}',
        b'{"inputs": {"source_sentence": "A text.", "sentences": ["Another."]}}',
        b'{"inputs": "a \\ud800 b"}',
        b'{"inputs": "\xed\xa0\x80"}',
        b'{"inputs": "a", "dimensions": NaN}',
        b'{"inputs": 1' + b"0" * 5000 + b"}",
        b'{"inputs": "\xff"}',
        b'{"inputs": "a" "b"}',
        b'{"inputs": "a',
        b"[" * 100_000,
        '{"inputs": "A text."}'.encode("utf-16"),
        b'{"documents": [{"id": "1", "text": "a", "metadata": {"x": 18446744073709551616}}]}',
        b'{"documents": [{"id": "1", "text": "a"}]}',
        b'{"index": "none", "text": "a", "filter": [[], []]}',
        b'{"index": "none", "text": "a"}',
        b"[]",
    ],
)
def test_a_large_body_gets_the_same_answer_as_a_small_one(
    server: Server, path: str, body: bytes
) -> None:
    def answer(content: bytes) -> tuple[int, bytes]:
        given = httpx.post(
            server.url + path,
            content=content,
            headers={"content-type": "application/json"},
            timeout=60,
        )
        return given.status_code, given.content

    padding = PADDING.decode().encode("utf-16-le") if body[:2] == b"\xff\xfe" else PADDING
    assert answer(body + padding) == answer(body)


HARD = st.text(alphabet='a,:[{"\\é\n', max_size=8)
COUNTABLE = st.recursive(
    st.none() | st.booleans() | st.integers() | HARD,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(HARD, inner, max_size=4),
    max_leaves=20,
)


def counted(value: Any) -> int:
    """Marks of a parsed value: one per list, object and key, and one between two items."""
    if isinstance(value, dict):
        return 1 + len(value) + max(len(value) - 1, 0) + sum(map(counted, value.values()))
    if isinstance(value, list):
        return 1 + max(len(value) - 1, 0) + sum(map(counted, value))
    return 0


@given(COUNTABLE)
@pytest.mark.parametrize("step", [1, 2, 7, large.COUNTED])
def test_marks_in_strings_do_not_count(step: int, value: Any) -> None:
    body = json.dumps(value).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(large, "COUNTED", step)
        *_, found = large.values(body)
    assert found == 1 + counted(value)
    assert 1 + large.marks(body) >= found


def test_the_quick_bound_counts_marks_in_strings() -> None:
    body = b'{"inputs": "a, b, [c]: d"}'
    *_, found = large.values(body)
    assert (found, 1 + large.marks(body)) == (3, 7)


@pytest.mark.parametrize(
    "body", [b"", b'"', b"\\", b'"\\', b'{"a": "b', b"\\" * 9 + b'"', b"\xff,"]
)
def test_bytes_that_are_not_json_are_counted_without_an_error(body: bytes) -> None:
    *_, found = (1, *large.values(body))
    assert found <= 1 + large.marks(body)
