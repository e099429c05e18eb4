"""Bad input gets a clear 4xx, unusual valid input gets an answer; neither gets 5xx or hangs."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from docsplit.bundles.format import DEFAULT_BUNDLE
from tests.conftest import Server, serving, wait_until

KEY = "a-key-for-tests-only"
JSON = {"content-type": "application/json"}
LONELY = b'{"inputs": "a \\ud800 b"}'


def send(
    server: Server, content: bytes | str, path: str = "/embed", **headers: str
) -> httpx.Response:
    return httpx.post(f"{server.url}{path}", content=content, headers=JSON | headers, timeout=60)


def check_refused(answer: httpx.Response, status: int, *hints: str) -> None:
    assert answer.status_code == status, answer.text[:300]
    error = answer.json()["error"]
    message = error if isinstance(error, str) else error["message"]
    for hint in hints:
        assert hint in message
    assert len(answer.content) < 500


@pytest.mark.parametrize(("field", "most"), [("", "1 or more"), ("a" * 2000, "or fewer")])
def test_a_text_of_a_wrong_length_is_no_list(server: Server, field: str, most: str) -> None:
    body = json.dumps({"fields": [field]})
    answer = send(server, body, "/indexes/any/links/find")
    check_refused(answer, 422, "fields.0: give a text of", f"{most} characters")


@pytest.mark.parametrize("path", ["/embed", "/"])
@pytest.mark.parametrize(
    ("body", "status", "hint"),
    [
        ({"inputs": ""}, 400, "input 0 is empty"),
        ({"inputs": []}, 400, "the list is empty"),
        ({"inputs": ["fine", " \n\t "]}, 400, "input 1 is empty"),
        ({"inputs": "\x01\x02\x00"}, 400, "input 0 is empty"),
        ({"inputs": None}, 422, "give a string or a list of strings"),
        ({"inputs": 5}, 422, "give a string or a list of strings"),
        ({"inputs": True}, 422, "give a string or a list of strings"),
        ({"inputs": [["a", "b"]]}, 422, "item 0"),
        ({"inputs": ["a", None]}, 422, "item 1: give a string"),
        ({"inputs": [101, 2023, 102]}, 422, "token ids are not accepted"),
        ({"inputs": [[101, 2023], [102]]}, 422, "token ids are not accepted"),
        ({}, 422, "inputs: Field required"),
        ([], 422, "send a JSON object"),
        ("text", 422, "send a JSON object"),
        (None, 422, "send a JSON object"),
        ({"inputs": "a", "dimensions": 0}, 422, "dimensions"),
        ({"inputs": "a", "dimensions": 385}, 422, "this model has 384"),
        ({"inputs": "a", "dimensions": "many"}, 422, "dimensions"),
        ({"inputs": "a", "encoding_format": "hex"}, 422, "encoding_format"),
        ({"inputs": "a", "normalize": "perhaps"}, 422, "normalize"),
        ({"inputs": "a", "truncation_direction": "up"}, 422, "truncation_direction"),
        ({"inputs": "a", "prompt_name": "none"}, 422, "prompt_name"),
    ],
)
def test_wrong_fields(server: Server, path: str, body: Any, status: int, hint: str) -> None:
    check_refused(send(server, json.dumps(body), path), status, hint)


@pytest.mark.parametrize(
    ("body", "status", "hint"),
    [
        ({"input": "a"}, 422, "model"),
        ({"input": "a", "model": "gpt"}, 404, "GET /v1/models"),
        ({"input": "a", "model": "text-embedding-3-small"}, 404, "model_aliases serves the first"),
        (
            {"input": [1, 2], "model": DEFAULT_BUNDLE.name},
            422,
            "token ids are not accepted: send the text (OpenAIEmbeddings of LangChain does with "
            "check_embedding_ctx_length=False)",
        ),
        ({"input": "", "model": DEFAULT_BUNDLE.name}, 400, "empty"),
    ],
)
def test_openai_errors_have_openai_form(server: Server, body: Any, status: int, hint: str) -> None:
    answer = send(server, json.dumps(body), "/v1/embeddings")
    check_refused(answer, status, hint)
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"", 422),
        (b'{"inputs": "a', 400),
        (b"\xff\xfe\x00", 400),
        ('{"inputs": "h\xe9llo"}'.encode("latin-1"), 400),
        (LONELY, 422),
        (b'{"inputs": ' + b"[" * 100_000, 400),
        (b'{"inputs": ' + b"9" * 10_000 + b"}", 400),
    ],
)
def test_broken_bodies(server: Server, content: bytes, status: int) -> None:
    check_refused(send(server, content), status)


def test_wrong_media(server: Server) -> None:
    check_refused(send(server, b"{}", **{"content-type": "text/plain"}), 415, "application/json")
    check_refused(send(server, b"{}", **{"content-encoding": "gzip"}), 415, "uncompressed")
    for parameters in ("charset=latin-1", "profile=x; Charset=latin-1", "charset=latin-1;"):
        latin = {"content-type": f"application/json; {parameters}"}
        check_refused(send(server, b"{}", **latin), 415, "UTF-8")


@pytest.mark.parametrize("parameters", ["charset=utf-8;", 'charset="UTF-8"; a=b', "profile=x"])
def test_other_parameters_of_the_type_do_not_matter(server: Server, parameters: str) -> None:
    kind = {"content-type": f"application/json; {parameters}"}
    assert send(server, b'{"inputs": "a"}', **kind).status_code == 200


@pytest.mark.parametrize("value", ["0", "-1", "soon", "nan", "inf", "601"])
def test_wrong_deadlines(server: Server, value: str) -> None:
    check_refused(send(server, b'{"inputs": "a"}', **{"x-request-timeout": value}), 422, "seconds")


def test_a_deadline_that_passes(server: Server, long_document: str) -> None:
    body = json.dumps({"inputs": "a deadline of its own. " + long_document})
    check_refused(send(server, body, **{"x-request-timeout": "0.3"}), 504, "deadline")
    assert server.metric("docsplit_queue_tokens") == 0


def test_unknown_routes_and_methods(server: Server) -> None:
    check_refused(httpx.get(f"{server.url}/nowhere"), 404, "/docs")
    wrong = httpx.get(f"{server.url}/embed")
    check_refused(wrong, 405, "/docs")
    assert wrong.headers.get_list("allow") == ["POST"]


def test_five_megabytes_of_one_word(server: Server) -> None:
    text = "x" * 5_000_000
    answer = send(server, json.dumps({"inputs": text}))
    assert answer.status_code == 413
    assert "tokens" in answer.json()["error"]
    answer = send(server, json.dumps({"inputs": text, "truncate": True}))
    assert answer.status_code == 200
    assert len(answer.content) < 10_000
    assert int(answer.headers["x-compute-tokens"]) <= 512


def test_a_sentence_without_end_is_not_cut(server: Server) -> None:
    text = "word " * 3000
    body = json.dumps({"inputs": text, "windows": True})
    [usage] = send(server, body).json()["usage"]
    assert usage["used_tokens"] == 3000
    assert usage["windows"] > 5


def test_control_characters_and_emoji_are_served(server: Server) -> None:
    assert send(server, json.dumps({"inputs": "a\x00b\x07 \u202e 😀 \ufeff"})).status_code == 200


def test_too_many_inputs(server: Server) -> None:
    check_refused(send(server, json.dumps({"inputs": ["a"] * 10_000})), 413, "10000", "2048")


def test_a_document_over_the_limit(server: Server) -> None:
    body = json.dumps({"inputs": ["fine", "one two " * 140_000]})
    check_refused(send(server, body), 413, "input 1", "more than 262144", "truncate=true")
    short = send(server, json.dumps({"inputs": "one two " * 140_000, "truncate": True}))
    assert short.headers["x-truncated"] == "true"


def test_a_body_over_the_limit(server: Server) -> None:
    check_refused(send(server, b" " * 16_777_217), 413, "16777216")

    def chunks() -> Iterator[bytes]:
        for _ in range(300):
            yield b" " * 65_536

    answer = httpx.post(f"{server.url}/embed", content=chunks(), headers=JSON)
    check_refused(answer, 413, "16777216")


def head(length: int) -> str:
    return (
        f"POST /embed HTTP/1.1\nhost: x\ncontent-type: application/json\ncontent-length: {length}"
    )


def raw(server: Server, start: str, body: bytes = b"") -> socket.socket:
    port = int(server.url.rsplit(":", 1)[1])
    connection = socket.create_connection(("127.0.0.1", port), timeout=30)
    connection.sendall(start.replace("\n", "\r\n").encode() + b"\r\n\r\n" + body)
    return connection


def test_half_a_body_gets_408_at_the_deadline(server: Server) -> None:
    with raw(server, f"{head(100)}\nx-request-timeout: 0.3", b'{"inputs":') as connection:
        assert connection.recv(100).startswith(b"HTTP/1.1 408")


def test_a_client_that_leaves_after_half_a_body_leaves_nothing_behind(server: Server) -> None:
    for _ in range(20):
        raw(server, head(100), b'{"inputs":').close()
    assert send(server, b'{"inputs": "still there"}').status_code == 200


def test_a_client_that_leaves_frees_the_queue(server: Server, long_document: str) -> None:
    body = json.dumps({"inputs": "a client that leaves. " + long_document}).encode()
    connection = raw(server, head(len(body)), body)
    wait_until(lambda: server.metric("docsplit_queue_tokens") > 0, 30)
    connection.close()
    wait_until(lambda: server.metric("docsplit_queue_tokens") == 0, 2)
    assert send(server, b'{"inputs": "still quick"}').status_code == 200


def test_no_answer_or_log_repeats_the_callers_text(server: Server) -> None:
    secret = "caller-secret-7261"
    for body in (
        {"inputs": {"x": secret}},
        {"inputs": secret, "dimensions": secret},
        {"inputs": secret, "prompt_name": secret},
        {"inputs": [secret, None]},
    ):
        answer = send(server, json.dumps(body))
        assert answer.status_code == 422
        assert secret not in answer.text
    assert (
        secret
        not in send(server, json.dumps({"input": "a", "model": secret}), "/v1/embeddings").text
    )
    assert secret not in server.log.read_text()


def test_no_refusal_in_this_file_was_a_server_error(server: Server) -> None:
    for line in httpx.get(f"{server.url}/metrics").text.splitlines():
        if line.startswith("docsplit_requests_total"):
            assert 'status="500"' not in line


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory, light: tuple[str, ...]) -> Iterator[Server]:
    log = tmp_path_factory.mktemp("locked") / "log"
    with serving(log, "--api-keys", f"another-key-for-tests,{KEY}", *light) as running:
        yield running


@pytest.mark.parametrize("value", [None, "", KEY, f"Basic {KEY}", f"Bearer {KEY}x", "Bearer \xff"])
def test_a_wrong_key(locked: Server, value: str | None) -> None:
    headers = {} if value is None else {b"authorization": value.encode("latin-1")}
    for path in ("/embed", "/v1/embeddings", "/info", "/nowhere"):
        answer = httpx.post(f"{locked.url}{path}", headers=headers, content=b"{")
        check_refused(answer, 401, "Authorization: Bearer")
        assert answer.headers["www-authenticate"] == "Bearer"
    assert KEY not in locked.log.read_text()


def test_the_right_key(locked: Server) -> None:
    assert send(locked, b'{"inputs": "a"}', authorization=f"Bearer {KEY}").status_code == 200
    assert httpx.get(f"{locked.url}/info", headers={"authorization": f"bearer {KEY}"}).is_success


@pytest.mark.parametrize(
    "path", ["/health", "/livez", "/readyz", "/metrics", "/docs", "/v1/models"]
)
def test_open_routes_need_no_key(locked: Server, path: str) -> None:
    assert httpx.get(f"{locked.url}{path}").status_code == 200


def test_monitors_may_ask_by_head(locked: Server) -> None:
    for path in ("/health", "/livez", "/readyz"):
        asked = httpx.head(f"{locked.url}{path}")
        assert (asked.status_code, asked.content) == (200, b"")
    assert httpx.head(f"{locked.url}/embed").status_code in (401, 405)
