"""A service gets a new bundle and its former one: requests go on, whatever happens meanwhile."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from docsplit.bundles import format as bundle
from tests import forked
from tests.conftest import ROOT, Server, free_port, serving
from tests.index.conftest import call, upsert
from tests.index.test_generations import held, until
from tests.light_bundle import seal_light
from tests.other_bundle import seal_other
from tests.storage import placed

QUERY = {"index": "kept", "text": "Which text has number seven?", "top_k": 50, "mode": "cosine"}
DOCUMENTS = [{"id": f"a{i:02}", "text": f"Text number {i} of some. " * 20} for i in range(40)]


@dataclass
class Traffic:
    """Readers and a writer, who go on while replicas end and begin.

    Attributes:
        server: that they ask; None while there is none.
        scores: of each revision that answered: by id, those of the first answer.
        faults: what must not happen.
        written: ids of acknowledged documents.
    """

    server: Server | None
    scores: dict[str, dict[str, float]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)

    def read(self) -> None:
        while not self._stop.is_set():
            answer = self._ask("POST", "/similar", QUERY)
            if answer is None:
                continue
            revision = answer.headers["x-index-revision"]
            found = {hit["id"]: hit["cosine"] for hit in answer.json()}
            known = self.scores.setdefault(revision, {})
            for name, score in found.items():
                if abs(known.setdefault(name, score) - score) > 2e-3:
                    self.faults.append(f"{name}: {score} and {known[name]} by {revision[:12]}")

    def write(self) -> None:
        while not self._stop.is_set():
            name = f"w{len(self.written):04}"
            document = {"id": name, "text": f"Written as number {len(self.written)}."}
            path = "/indexes/kept/documents"
            if self._ask("POST", path, {"documents": [document]}) is None:
                continue
            self.written.append(name)
            # the former one too: the switch may have come in between
            for one in self.written[-2:]:
                self._ask("GET", f"{path}/{one}", None)

    def _ask(self, method: str, path: str, body: Any) -> httpx.Response | None:
        """An answer; None if the replica ended, or there is none."""
        server = self.server
        if server is None:
            time.sleep(0.05)
            return None
        try:
            answer = httpx.request(method, server.url + path, json=body, timeout=60)
        except httpx.TransportError:
            if server is self.server and not self._stop.is_set():
                self.faults.append(f"{method} {path}: no answer")
            return None
        if answer.status_code != 200:
            self.faults.append(f"{method} {path}: {answer.status_code} {answer.text[:200]}")
            return None
        return answer

    @contextmanager
    def going(self) -> Iterator[None]:
        threads = [threading.Thread(target=work) for work in (self.read, self.read, self.write)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()
            for thread in threads:
                thread.join(90)


@pytest.fixture
def revisions(tmp_path: Path, light: tuple[str, ...]) -> tuple[str, str]:
    """The former one and the new one, whose bundle is in the folder ``new``."""
    seal_light(tmp_path / "new", 32)
    former, new = (bundle.load(path).manifest for path in (Path(light[1]), tmp_path / "new"))
    return former.revision, new.revision


def test_no_request_fails_during_a_change_of_bundles(
    tmp_path: Path, light: tuple[str, ...], revisions: tuple[str, str]
) -> None:
    former, new = light[1], str(tmp_path / "new")
    with serving(tmp_path / "old.log", "--bundle", former) as old:
        call(old, "PUT", "/indexes/kept", {}, status=201)
        upsert(old, "kept", *DOCUMENTS)
    both = ("--bundle", new, "--former-bundle", former)
    traffic = Traffic(None)
    with traffic.going():
        # however slow this machine is, the former bundle answers for some time
        with held(tmp_path, revisions[1]), serving(tmp_path / "killed.log", *both) as killed:
            traffic.server = killed
            until(lambda: len(traffic.written) > 2 and bool(traffic.scores), "some requests")
            assert {*traffic.scores} == {revisions[0]}
            traffic.server = None
            killed.process.send_signal(signal.SIGKILL)
        with serving(tmp_path / "new.log", *both) as again:
            traffic.server = again
            until(lambda: call(again, "GET", "/indexes/kept")["current"], "the switch")
            switched = len(traffic.written)
            until(lambda: len(traffic.written) > switched + 2, "writes after the switch")
            until(lambda: {*traffic.scores} == {*revisions}, "reads by both bundles")
            traffic.server = None
            assert traffic.faults == []
            _require(again, traffic.written)
            upsert(again, "kept", {"id": "last", "text": "Written just before."})
            traffic.written.append("last")
            path = f"/indexes/kept/generations/{revisions[1]}"
            call(again, "DELETE", path, status=409)
            until(lambda: _counts(again) == {len(DOCUMENTS) + len(traffic.written)}, "the copies")
        back = ("--bundle", former, "--former-bundle", new)
        with serving(tmp_path / "back.log", *back) as returned:
            answer = httpx.post(f"{returned.url}/similar", json=QUERY, timeout=60)
            assert answer.headers["x-index-revision"] == revisions[0]
            _require(returned, traffic.written)
    one, other = (traffic.scores[revision] for revision in revisions)
    # a control: the two bundles score differently
    assert abs(one["a07"] - other["a07"]) > 1e-2


def test_a_former_bundle_of_no_index_is_refused_at_the_start(
    tmp_path: Path, light: tuple[str, ...], revisions: tuple[str, str]
) -> None:
    with serving(tmp_path / "old.log", *light) as old:
        call(old, "PUT", "/indexes/kept", {}, status=201)
    seal_other(tmp_path / "wrong", Path(light[1]))
    start = ["--port", str(free_port()), "--index-path", placed(tmp_path / "index")]
    start += ["--calibrate", "0", "--bundle", str(tmp_path / "new")]
    for folder, status, said in (
        ("wrong", 1, "the index 'kept' has vectors of the bundle"),
        ("missing", 2, "missing"),
    ):
        flags = ("--former-bundle", str(tmp_path / folder))
        done = forked.run("service.__main__", *start, *flags, folder=ROOT)
        assert done.returncode == status, done.stderr
        assert said in done.stderr


def _counts(server: Server) -> set[int]:
    return {one["documents"] for one in call(server, "GET", "/indexes/kept")["generations"]}


def _require(server: Server, names: list[str]) -> None:
    body = {"ids": [*names, *(one["id"] for one in DOCUMENTS)], "text": False}
    assert call(server, "POST", "/indexes/kept/documents/get", body)["missing"] == []
