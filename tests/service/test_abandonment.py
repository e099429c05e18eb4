"""Clients that leave a running service: their work ends, and nothing of theirs remains.

The tests send 90 requests in four rounds and leave; with HYPOTHESIS_PROFILE=nightly, 200 for each
route.
"""

from __future__ import annotations

import json
import re
import select
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.keys import file
from tests.conftest import NIGHTLY, Server, answered, connect, serving, wait_until

# after a second most requests have their answers; by day that work would be done in vain
LEFT_AFTER = (0.01, 0.1, 1.0) if NIGHTLY else (0.01, 0.1)
AT_ONCE = 20
# more bytes than after the first round of such requests
MORE_MEMORY = 200_000_000
ROUNDS = 3

RIGHTS = {
    "boss": "",
    "doomed": "",
    "thrifty": "tokens_per_second = 10",
    **{f"doomed-{number}": "" for number in range(3)},
}
TOKENS = {name: file.new_token() for name in RIGHTS}
_numbers = count()


def entry(name: str, fields: str) -> str:
    digest = file.digest(TOKENS[name].encode()).hex()
    return f'[keys.{name}]\nsha256 = "{digest}"\n{fields}\n'


@dataclass
class House:
    """A service with keys, an index, and classifiers."""

    server: Server
    keys: Path
    revoked: set[str] = field(default_factory=set)

    def ask(
        self, method: str, path: str, body: Any = None, status: int = 200, by: str = "boss"
    ) -> Any:
        headers = {"authorization": f"Bearer {TOKENS[by]}"}
        sent: dict[str, Any] = {"json": body}
        if isinstance(body, bytes):
            headers["content-type"] = media_type(body)
            sent = {"content": body}
        answer = httpx.request(
            method, f"{self.server.url}{path}", headers=headers, timeout=60, **sent
        )
        assert answer.status_code == status, answer.text[:500]
        return answer.json() if answer.content else None

    def leave(self, method: str, path: str, body: Any, seconds: float, by: str = "boss") -> None:
        """Send a whole request, and leave without reading the answer."""
        connection = self.send(method, path, body, by)
        time.sleep(seconds)
        connection.close()

    def send(self, method: str, path: str, body: Any, by: str = "boss") -> socket.socket:
        kind, content = "application/json", b""
        if isinstance(body, bytes):
            kind, content = media_type(body), body
        elif body is not None:
            content = json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TOKENS[by]}\r\n"
        head += f"content-type: {kind}\r\ncontent-length: {len(content)}\r\n\r\n"
        connection = connect(self.server)
        connection.sendall(head.encode() + content)
        return connection

    def revoke(self, name: str) -> None:
        self.revoked.add(name)
        new = self.keys.with_suffix(".new")
        new.write_text(
            "".join(
                entry(n, "revoked = true" if n in self.revoked else fields)
                for n, fields in RIGHTS.items()
            )
        )
        new.replace(self.keys)

    def accepts(self, name: str) -> bool:
        headers = {"authorization": f"Bearer {TOKENS[name]}"}
        answer = httpx.get(f"{self.server.url}/indexes", headers=headers, timeout=60)
        return answer.status_code == 200

    def threads_busy(self, pool: str = ".*") -> float:
        text = httpx.get(f"{self.server.url}/metrics", timeout=60).text
        pattern = rf'^docsplit_threads_busy\{{pool="{pool}"\}} (.*)$'
        values = re.findall(pattern, text, re.MULTILINE)
        assert values
        return sum(map(float, values))

    def quiet(self) -> bool:
        """Whether no request has left work, memory or connections behind."""
        return (
            self.server.metric("docsplit_inflight_bytes") == 0
            and self.server.metric("docsplit_queue_tokens") == 0
            and self.server.metric("docsplit_upload_bytes") == 0
            and self.threads_busy() == 0
        )


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory, peps: dict[str, str]) -> Iterator[House]:
    folder = tmp_path_factory.mktemp("abandonment")
    keys = folder / "keys.toml"
    keys.write_text("".join(entry(name, fields) for name, fields in RIGHTS.items()))
    # no cache, so that the same text needs work each time
    flags = ("--keys-file", str(keys), "--cache-bytes", "0", "--model-aliases", "docsplit")
    with serving(folder / "log", *flags) as server:
        made = House(server, keys)
        made.ask("PUT", "/indexes/left", {}, status=201)
        documents = [
            {
                "id": f"d{number}",
                "text": text[:200],
                "links": [f"d{number - 1}", f"d{number - 2}"] if number > 20 else [],
            }
            for number, text in enumerate(list(peps.values())[:40])
        ]
        made.ask("POST", "/indexes/left/documents", {"documents": documents})
        made.ask("PUT", "/classifiers/held", small())
        yield made


def small() -> dict[str, Any]:
    """Examples from the index."""
    return {
        "index": "left",
        "ids": [f"d{number}" for number in range(20)],
        "labels": ["even", "odd"] * 10,
    }


def large() -> dict[str, Any]:
    """A training of half a minute or more: many labels."""
    labels = [f"label {number}" for number in range(4000)]
    sets = [labels[number % 2 :: 2] if number < 4 else labels for number in range(6)]
    sets += [[], []]
    texts = [f"document {number}" for number in range(8)]
    return {"inputs": texts, "labels": sets, "multi_label": True}


def requests(peps: dict[str, str], size: int | None = None) -> dict[str, tuple[str, str, Any]]:
    """Every kind of request: method, path and body; each call returns new ones.

    They take work, unless ``size``, the characters of the text, is small.
    """
    number = next(_numbers)
    text = f"number {number} " + peps["pep-8"][:size]
    return {
        "embed": ("POST", "/embed", {"inputs": [text, text[:5000]]}),
        "openai": ("POST", "/v1/embeddings", {"input": text, "model": "docsplit"}),
        "similarity": (
            "POST",
            "/similarity",
            {"inputs": {"source_sentence": text[:4000], "sentences": [text[:900], "b"]}},
        ),
        "classify": ("POST", "/classify", {"inputs": [text, "a"], "classifier": "held"}),
        "train": ("PUT", f"/classifiers/left-{number}", large()),
        "background": (
            "PUT",
            f"/classifiers/back-{number}",
            small() | {"background": True},
        ),
        "retrain": ("POST", "/classifiers/held/retrain", None),
        "suggest": ("POST", "/classifiers/held/suggest", {"index": "left", "count": 5}),
        "cite": ("POST", "/indexes/left/citation", None),
        "upsert": (
            "POST",
            "/indexes/left/documents",
            {"documents": [{"id": f"n{number % 10}", "text": text[:6000]}]},
        ),
        "upload": ("POST", "/indexes/left/files", form(f"n{number % 10}.txt", text[:6000])),
        "search": ("POST", "/similar", {"index": "left", "text": text[:3000]}),
        "passages": ("POST", "/passages", {"index": "left", "text": text[:3000]}),
        "duplicates": ("GET", "/indexes/left/duplicates", None),
        "links": ("POST", "/indexes/left/links/find", {}),
        "page": ("GET", "/indexes/left/documents", None),
        "delete": ("DELETE", f"/indexes/left/documents/n{number % 10}", None),
        "describe": ("GET", "/classifiers/held", None),
    }


def media_type(body: bytes) -> str:
    """The type of a form of files, or of lines of JSON."""
    form = body.startswith(b"--")
    return "multipart/form-data; boundary=x" if form else "application/x-ndjson"


def form(name: str, text: str) -> bytes:
    """A form of one file."""
    head = f'--x\r\ncontent-disposition: form-data; name="files"; filename="{name}"\r\n\r\n'
    return f"{head}{text}\r\n--x--\r\n".encode()


def abandon(house: House, peps: dict[str, str], times: int) -> None:
    """Send requests of all kinds, mixed, ``AT_ONCE`` at a time, and leave."""
    kinds = list(requests(peps))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        left = [
            pool.submit(
                house.leave,
                *requests(peps)[kinds[turn % len(kinds)]],
                LEFT_AFTER[turn // len(kinds) % len(LEFT_AFTER)],
            )
            for turn in range(times)
        ]
        for one in left:
            one.result()


def settle(house: House) -> None:
    """Wait until all abandoned work has ended, including trainings in the background."""

    def trained() -> bool:
        names = house.ask("GET", "/classifiers")["classifiers"]
        for name in names:
            # an abandoned training may have ended before it noticed
            if name != "held":
                house.ask("DELETE", f"/classifiers/{name}", status=204)
        return names == ["held"]

    # accepted trainings run one after the other, for seconds each on a slow machine
    wait_until(house.quiet, 120)
    wait_until(trained, 60)
    wait_until(house.quiet, 30)


def test_abandoned_trainings_delay_neither_writes_nor_revocations(house: House) -> None:
    # more trainings than asyncio's default executor has threads on two cores
    for number in range(8):
        connection = house.send("PUT", f"/classifiers/row-{number}", large())
        wait_until(lambda: house.threads_busy("training") == 1, 30)
        connection.close()
    house.revoke("doomed")
    wait_until(lambda: not house.accepts("doomed"), 10)
    document = {"id": "later", "text": "a later document"}
    house.ask("POST", "/indexes/left/documents", {"documents": [document]})
    wait_until(lambda: house.threads_busy() == 0, 10)
    house.ask("PUT", "/classifiers/held", small())


def test_only_a_few_trainings_wait(house: House) -> None:
    sent = [
        house.send("PUT", f"/classifiers/many-{number}", small() | {"labels": labels})
        for number, labels in enumerate([["even", "odd"] * 10] * 2)
    ]
    sent += [house.send("PUT", f"/classifiers/many-{n}", large()) for n in range(2, 10)]
    # the refusals come at once, and no other answer
    select.select(sent[2:], [], [], 30)
    answers = [answered(one) for one in sent[2:] if _answers(one)]
    refused = [(answer, answer.read()) for answer in answers]
    for one in sent:
        one.close()
    assert refused
    for answer, body in refused:
        assert answer.status == 429
        assert answer.getheader("retry-after") is not None
        assert b"trainings are waiting" in body
    wait_until(house.quiet, 30)


def _answers(connection: socket.socket) -> bool:
    connection.settimeout(0.1)
    try:
        return bool(connection.recv(1, socket.MSG_PEEK))
    except TimeoutError:
        return False


def test_a_client_that_left_is_charged_for_begun_work(house: House, long_document: str) -> None:
    connection = house.send("POST", "/embed", {"inputs": long_document[:400_000]}, by="thrifty")
    wait_until(lambda: house.server.metric("docsplit_queue_tokens") > 0, 30)
    connection.close()
    refused = house.ask("POST", "/embed", {"inputs": "a"}, 429, by="thrifty")
    assert "this API key exceeds its rate" in refused["error"]
    wait_until(house.quiet, 30)


def test_abandoned_requests_leave_nothing_behind(house: House, peps: dict[str, str]) -> None:
    # first reach the peak of parallel requests, so that all threads and buffers exist
    abandon(house, peps, len(LEFT_AFTER) * len(requests(peps)))
    settle(house)
    threads, memory = [house.server.threads()], house.server.memory()
    leavings = 200 * len(requests(peps)) if NIGHTLY else 50
    for _ in range(ROUNDS):
        abandon(house, peps, -(-leavings // ROUNDS))
        settle(house)
        threads.append(house.server.threads())
    house.revoke("doomed-0")
    wait_until(lambda: not house.accepts("doomed-0"), 10)
    # pools start threads when needed, up to their size; a leak adds threads in every round
    assert any(after <= before for before, after in pairwise(threads)), threads
    assert house.server.memory() <= memory + MORE_MEMORY
    expected = {"background": 202, "delete": 204, "upload": 202, "embed a file": 202}
    for kind, (method, path, body) in requests(peps, 300).items():
        if kind == "train":
            path, body = path, small()
        house.ask(method, path, body, expected.get(kind, 200))
    settle(house)
    assert "Traceback" not in house.server.log.read_text()
