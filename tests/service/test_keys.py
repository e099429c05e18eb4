"""Keys from a file, in a running service."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.__main__ import main as serve
from service.keys import file
from tests.conftest import Server, serving, wait_until

RIGHTS = {
    "boss": "",
    "reader": 'read_indexes = ["mine"]\nuse_classifiers = ["mine"]',
    "writer": 'write_indexes = ["mine"]\ntrain_classifiers = ["mine"]',
    "stranger": 'read_indexes = ["theirs"]\nwrite_indexes = ["theirs"]',
    "revoked": "revoked = true",
    "expired": "expires = 2020-01-01T00:00:00Z",
    "ancient": "expires = 0001-01-01T00:00:00+05:00",
    "lasting": "expires = 9999-12-31T23:59:59-05:00",
    "last": "expires = 9999-12-31T23:59:59.999999Z",
    "narrow": "requests_per_second = 0.01",
    "thrifty": "tokens_per_second = 1",
    "uploader": "tokens_per_second = 1",
}
TOKENS = {name: file.new_token() for name in RIGHTS}


def entry(name: str, token: str, fields: str) -> str:
    return f'[keys.{name}]\nsha256 = "{file.digest(token.encode()).hex()}"\n{fields}\n'


@dataclass
class Locked:
    """A service with a file of keys."""

    server: Server
    path: Path

    def ask(self, name: str, method: str, path: str, **arguments: object) -> httpx.Response:
        return self.ask_by(TOKENS[name], method, path, **arguments)

    def ask_by(self, token: str, method: str, path: str, **arguments: object) -> httpx.Response:
        headers = {"authorization": f"Bearer {token}"}
        if "content" in arguments:
            headers["content-type"] = "application/x-ndjson"
        return httpx.request(
            method,
            f"{self.server.url}{path}",
            headers=headers,
            timeout=60,
            **arguments,  # type: ignore[arg-type]
        )


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory, light: tuple[str, ...]) -> Iterator[Locked]:
    folder = tmp_path_factory.mktemp("locked")
    path = folder / "keys.toml"
    path.write_text("".join(entry(n, TOKENS[n], fields) for n, fields in RIGHTS.items()))
    with serving(folder / "log", "--keys-file", str(path), *light) as server:
        yield Locked(server, path)


def status(locked: Locked, name: str, method: str, path: str, **arguments: object) -> int:
    return locked.ask(name, method, path, **arguments).status_code


def test_valid_keys_get_in_and_invalid_ones_do_not(locked: Locked) -> None:
    text = {"inputs": "a"}
    assert httpx.post(f"{locked.server.url}/embed", json=text).status_code == 401
    assert locked.ask_by(TOKENS["boss"] + "x", "POST", "/embed", json=text).status_code == 401
    for name in ("boss", "reader", "stranger"):
        assert status(locked, name, "POST", "/embed", json=text) == 200
    for name, code in (("revoked", "key_revoked"), ("expired", "key_expired")):
        refused = locked.ask(name, "POST", "/v1/embeddings", json={})
        assert refused.status_code == 403
        assert refused.json()["error"]["code"] == code
        assert refused.json()["error"]["type"] == "permission_error"


def test_a_rate_of_requests(locked: Locked) -> None:
    assert status(locked, "narrow", "GET", "/info") == 200
    late = locked.ask("narrow", "GET", "/info")
    assert late.status_code == 429
    assert 90 <= int(late.headers["retry-after"]) <= 100
    # other clients are not affected
    assert status(locked, "boss", "GET", "/info") == 200


def test_keys_and_their_use_are_shown_to_those_who_may(locked: Locked) -> None:
    before = {one["name"]: one for one in locked.ask("boss", "GET", "/keys").json()["keys"]}
    assert before.keys() == RIGHTS.keys()
    expiries = [before[name]["expires"] for name in ("ancient", "lasting", "last")]
    assert expiries == ["1970-01-01T00:00:00Z", None, None]
    assert [status(locked, name, "GET", "/keys") for name in ("ancient", "last")] == [403, 200]
    embedded = locked.ask("stranger", "POST", "/embed", json={"inputs": "a sentence for the key"})
    assert embedded.status_code == 200
    answer = locked.ask("stranger", "GET", "/keys")
    [own] = answer.json()["keys"]
    assert (own["name"], own["own"], own["everything"]) == ("stranger", True, False)
    assert own["read_indexes"] == ["theirs"]
    assert own["use_classifiers"] == []
    # the second request is the one that asks
    assert own["requests"] == before["stranger"]["requests"] + 2
    assert own["tokens"] > before["stranger"]["tokens"]
    everybody = locked.ask("boss", "GET", "/keys").text
    for token in TOKENS.values():
        assert token not in everybody
        assert file.digest(token.encode()).hex() not in everybody


def test_a_rate_of_tokens_is_charged_afterwards(locked: Locked) -> None:
    many = {"inputs": "word " * 200}
    assert status(locked, "thrifty", "POST", "/embed", json=many) == 200
    late = locked.ask("thrifty", "POST", "/embed", json=many)
    assert late.status_code == 429
    assert 150 <= int(late.headers["retry-after"]) <= 200


def operations(locked: Locked, prefix: str) -> list[tuple[str, str]]:
    paths = httpx.get(f"{locked.server.url}/openapi.json").json()["paths"]
    return [
        (method.upper(), path)
        for path, methods in paths.items()
        if path.startswith(prefix) and "{name}" in path
        for method in methods
    ]


def concrete(path: str) -> str:
    path = path.replace("{name}", "mine").replace("{revision}", "0" * 12)
    return path.replace("{document_id}", "a")


def test_every_route_with_a_name_checks_rights(locked: Locked) -> None:
    found = operations(locked, "/indexes/") + operations(locked, "/classifiers/")
    assert len(found) >= 15
    for method, path in found:
        body = {"index": "mine"}
        assert status(locked, "stranger", method, concrete(path), json=body) == 403, path
        # with every right, the answer is 404 or reports a wrong body, but never 403
        assert status(locked, "boss", method, concrete(path), json={"fields": 5}) != 403, path
    text = httpx.get(f"{locked.server.url}/metrics").text
    refused = re.search(r'^docsplit_keys_refused_total\{reason="forbidden"\} (\S+)', text, re.M)
    assert refused
    assert float(refused[1]) >= len(found)


# a body of each route that names an index or a classifier there
NAMING: dict[str, dict[str, object]] = {
    "/aliases/{alias}": {"index": "mine"},
    "/classify": {"classifier": "mine", "inputs": "a"},
    "/passages": {"index": "mine", "text": "a"},
    "/predict": {"classifier": "mine", "inputs": "a"},
    "/similar": {"index": "mine", "text": "a"},
}


def test_every_route_whose_body_names_something_checks_rights(locked: Locked) -> None:
    described = httpx.get(f"{locked.server.url}/openapi.json").json()

    def names(schema: dict[str, Any]) -> set[str]:
        if "$ref" in schema:
            return names(described["components"]["schemas"][schema["$ref"].rpartition("/")[2]])
        found = set(schema.get("properties", {}))
        return found.union(*map(names, schema.get("anyOf", []) + schema.get("oneOf", [])))

    found = {
        path: method.upper()
        for path, methods in described["paths"].items()
        for method, route in methods.items()
        for content in route.get("requestBody", {}).get("content", {}).values()
        if "{name}" not in path and names(content["schema"]) & {"index", "classifier"}
    }
    assert found.keys() == NAMING.keys()
    for path, method in found.items():
        concrete = path.replace("{alias}", "other")
        assert status(locked, "stranger", method, concrete, json=NAMING[path]) == 403, path
        assert status(locked, "boss", method, concrete, json=NAMING[path]) != 403, path


def test_reading_and_writing_are_two_rights(locked: Locked) -> None:
    documents = {"documents": [{"id": "a", "text": "a text"}, {"id": "b", "text": "another"}]}
    place = "/indexes/mine/documents"
    assert status(locked, "reader", "PUT", "/indexes/mine", json={}) == 403
    assert status(locked, "writer", "PUT", "/indexes/mine", json={}) == 201
    assert status(locked, "reader", "POST", place, json=documents) == 403
    assert status(locked, "writer", "POST", place, json=documents) == 200
    # only a reader learns the number of documents
    answer = locked.ask("writer", "PUT", "/indexes/mine", json={}).json()
    assert set(answer) == {"name", "model", "served_by", "revision", "current", "fields"}
    assert locked.ask("boss", "PUT", "/indexes/mine", json={}).json()["documents"] == 2
    assert status(locked, "writer", "GET", f"{place}/a") == 403
    assert status(locked, "reader", "GET", f"{place}/a") == 200
    query = {"index": "mine", "id": "a"}
    assert status(locked, "writer", "POST", "/similar", json=query) == 403
    assert status(locked, "reader", "POST", "/similar", json=query) == 200
    assert status(locked, "writer", "POST", "/passages", json=query) == 403
    assert status(locked, "reader", "POST", "/passages", json=query) == 200
    assert status(locked, "reader", "DELETE", f"{place}/b") == 403
    for body in ({"ids": ["a"], "dry_run": True}, {"filter": {"field": "n", "eq": 1}}):
        assert status(locked, "writer", "POST", f"{place}/delete", json=body) == 403
    assert status(locked, "writer", "POST", f"{place}/delete", json={"ids": ["no"]}) == 200
    assert locked.ask("stranger", "GET", "/indexes").json() == {"indexes": []}
    assert locked.ask("reader", "GET", "/indexes").json() == {"indexes": ["mine"]}


def test_what_reveals_other_documents_needs_the_right_to_read(locked: Locked) -> None:
    place = "/indexes/mine/documents"
    assert status(locked, "boss", "PUT", "/indexes/mine", json={}) in (200, 201)
    document = {"id": "probe", "text": "Alice earns much, and gets a bonus."}
    file = {"files": {"file": ("a.txt", b"text")}}
    for kind, expected in (("mark", 403), ("refuse", 403), ("allow", 200)):
        body = {"documents": [document], "on_duplicate": kind}
        assert status(locked, "writer", "POST", place, json=body) == expected
        assert status(locked, "boss", "POST", place, json=body) == 200
        path = f"/indexes/mine/files?on_duplicate={kind}"
        assert status(locked, "writer", "POST", path, **file) == (202 if expected == 200 else 403)
    finding = "/indexes/mine/files?find_links=true"
    assert status(locked, "writer", "POST", finding, **file) == 403
    assert status(locked, "writer", "POST", "/indexes/mine/links/find", json={}) == 403
    assert status(locked, "boss", "POST", "/indexes/mine/links/find", json={}) == 200


def test_names_in_bodies_are_checked(locked: Locked) -> None:
    examples = {"inputs": ["a cat", "a dog", "a tax", "a law"], "labels": list("xxyy")}
    assert status(locked, "reader", "PUT", "/classifiers/mine", json=examples) == 403
    from_index = {"index": "theirs", "ids": ["a", "b"], "labels": ["x", "y"]}
    unreadable = examples | {"unlabelled": "theirs"}
    for body in (from_index, unreadable):
        assert status(locked, "writer", "PUT", "/classifiers/mine", json=body) in (403, 422)
    assert status(locked, "writer", "PUT", "/classifiers/mine", json=unreadable) == 403
    assert status(locked, "writer", "PUT", "/classifiers/mine", json=examples) == 200
    text = {"inputs": "a cat"}
    assert status(locked, "reader", "POST", "/classify", json=text) == 200
    assert status(locked, "writer", "POST", "/classify", json=text | {"classifier": "mine"}) == 403
    unnamed = locked.ask("stranger", "POST", "/classify", json=text)
    assert unnamed.status_code == 422
    assert "mine" not in unnamed.text
    listed = locked.ask("stranger", "GET", "/classifiers").json()
    assert listed == {"classifiers": [], "untrained": []}
    suggest = {"index": "theirs"}
    assert status(locked, "reader", "POST", "/classifiers/mine/suggest", json=suggest) == 403


def test_labels_need_the_right_to_read_their_documents(locked: Locked) -> None:
    assert status(locked, "boss", "PUT", "/indexes/mine", json={}) in (200, 201)
    documents = [{"id": each, "text": f"text {each}"} for each in "abcd"]
    body = {"documents": documents}
    assert status(locked, "boss", "POST", "/indexes/mine/documents", json=body) == 200
    given = [{"id": each, "labels": [label]} for each, label in zip("abcd", "xxyy", strict=True)]
    labels = {"index": "mine", "documents": given}
    place = "/classifiers/mine/labels"
    # one may train and not read, the other the reverse
    assert status(locked, "writer", "POST", place, json=labels) == 403
    assert status(locked, "reader", "POST", place, json=labels) == 403
    assert status(locked, "boss", "POST", place, json=labels) == 200
    assert len(locked.ask("reader", "GET", place).json()["documents"]) == 4
    assert status(locked, "writer", "POST", "/classifiers/mine/retrain") == 403
    assert status(locked, "stranger", "GET", place) == 403


def test_keys_change_without_a_restart(locked: Locked) -> None:
    before = locked.path.read_text()
    fresh = file.new_token()

    def info(token: str) -> int:
        return locked.ask_by(token, "GET", "/info").status_code

    assert info(fresh) == 401
    revoked = before.replace("[keys.boss]", "[keys.boss]\nrevoked = true")
    locked.path.write_text(revoked + entry("fresh", fresh, ""))
    wait_until(lambda: info(fresh) == 200, 20)
    assert info(TOKENS["boss"]) == 403
    locked.path.write_text("no TOML")
    wait_until(lambda: locked.server.metric("docsplit_keys_stale") == 1, 20)
    assert (info(fresh), info(TOKENS["boss"])) == (200, 403)
    locked.path.write_text(before)
    wait_until(lambda: info(TOKENS["boss"]) == 200, 20)
    assert info(fresh) == 401
    assert locked.server.metric("docsplit_keys_stale") == 0


def test_the_log_names_the_key_and_contains_no_token(locked: Locked) -> None:
    assert status(locked, "boss", "GET", "/info") == 200
    log = locked.server.log.read_text()
    assert '"key": "boss"' in log
    assert not [name for name, token in TOKENS.items() if token in log]


def test_an_unusable_file_of_keys_ends_the_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "keys.toml"
    assert serve(["--keys-file", str(path)]) == 2
    assert str(path) in capsys.readouterr().err
    path.write_text("[keys.a]\n")
    assert serve(["--keys-file", str(path)]) == 2
    assert "keys.a.sha256" in capsys.readouterr().err


def test_an_upload_is_charged_to_its_key(locked: Locked) -> None:
    def written(name: str, index: str) -> bool:
        files = {"files": (f"{name}.txt", f"by the {name} " * 30)}
        place = locked.ask(name, "POST", f"{index}/files", files=files).headers["location"]
        wait_until(lambda: locked.ask("boss", "GET", place).json()["ended"] is not None, 60)
        return bool(locked.ask("boss", "GET", place).json()["documents"]["written"])

    assert status(locked, "boss", "PUT", "/indexes/charged", json={}) == 201
    assert written("boss", "/indexes/charged")
    assert written("uploader", "/indexes/charged")
    # it is in debt for a minute
    assert status(locked, "uploader", "GET", "/jobs") == 429
    assert status(locked, "boss", "GET", "/jobs") == 200


def test_jobs_of_others_do_not_exist(locked: Locked) -> None:
    for name in ("mine", "theirs"):
        assert status(locked, "boss", "PUT", f"/indexes/{name}", json={}) in (200, 201)
    files = {"files": ("a.txt", b"a text")}
    for name in ("reader", "stranger"):
        assert status(locked, name, "POST", "/indexes/mine/files", files=files) == 403
    job = locked.ask("writer", "POST", "/indexes/mine/files", files=files).json()["id"]
    bosses = locked.ask("boss", "POST", "/indexes/mine/files", files=files).json()["id"]

    def seen(name: str) -> list[str]:
        jobs = locked.ask(name, "GET", "/jobs").json()["jobs"]
        return [one["id"] for one in jobs if one["id"] in (job, bosses)]

    assert seen("boss") == seen("reader") == [bosses, job]
    # who may only write sees what it began itself
    assert seen("writer") == [job]
    assert seen("stranger") == []
    for name, expected in {"boss": 200, "reader": 200, "writer": 200, "stranger": 404}.items():
        assert status(locked, name, "GET", f"/jobs/{job}") == expected
    for name, expected in {"reader": 403, "stranger": 404, "writer": 200}.items():
        assert status(locked, name, "DELETE", f"/jobs/{job}") == expected
    assert status(locked, "writer", "DELETE", f"/jobs/{bosses}") == 404


# they answer with what was sent, with versions and states, or with nothing
SILENT = {
    ("PUT", "/indexes/{name}"),
    ("DELETE", "/indexes/{name}"),
    ("DELETE", "/indexes/{name}/generations/{revision}"),
    ("POST", "/indexes/{name}/documents"),
    ("PATCH", "/indexes/{name}/documents/{document_id}"),
    ("DELETE", "/indexes/{name}/documents/{document_id}"),
    ("POST", "/indexes/{name}/documents/delete"),
    ("DELETE", "/indexes/{name}/links"),
    ("POST", "/indexes/{name}/files"),
    ("POST", "/indexes/{name}/map"),
}
# they tell what the index holds
TELLING = {
    ("POST", "/indexes/{name}/documents/get"): {"ids": ["a"]},
    ("POST", "/indexes/{name}/documents/delete"): {"filter": {"field": "year", "eq": 1}},
    ("POST", "/indexes/{name}/documents"): {
        "on_duplicate": "mark",
        "documents": [{"id": "a", "text": "a text"}],
    },
    ("POST", "/indexes/{name}/duplicates"): {"text": "a text"},
    ("POST", "/indexes/{name}/compare"): {"id": "a", "other": "b"},
    ("POST", "/indexes/{name}/links/find"): {},
    ("POST", "/indexes/{name}/citation"): None,
}


def test_answers_of_writes_show_nothing_that_the_key_may_not_read(locked: Locked) -> None:
    paths = locked.ask("boss", "GET", "/openapi.json").json()["paths"]
    writing = {
        (method.upper(), path)
        for path, methods in paths.items()
        for method in methods
        if path.startswith("/indexes/{name}") and method in ("post", "put", "patch", "delete")
    }
    assert writing == SILENT | TELLING.keys()
    assert status(locked, "boss", "PUT", "/indexes/mine", json={}) in (200, 201)
    for (method, path), body in TELLING.items():
        asked = path.replace("{name}", "mine")
        assert status(locked, "writer", method, asked, json=body) == 403, path
        assert status(locked, "boss", method, asked, json=body) != 403, path
