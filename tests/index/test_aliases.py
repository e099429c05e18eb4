"""Aliases of indexes: every route takes them, and a switch is one step."""

import asyncio
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.errors import ConflictError, NotFoundError
from service.index.rows import keyed
from service.keys import file
from tests.conftest import Server, serving, wait_until
from tests.index.conftest import call, upsert
from tests.index.processes import Replicas, run
from tests.service.test_keys import entry

TEXT = "A short text about bees."


@pytest.fixture
def other(server: Server) -> Iterator[str]:
    name = f"t-{uuid.uuid4().hex[:12]}"
    call(server, "PUT", f"/indexes/{name}", {}, status=201)
    yield name
    httpx.delete(f"{server.url}/indexes/{name}")


@pytest.fixture
def alias(server: Server) -> Iterator[str]:
    name = f"a-{uuid.uuid4().hex[:12]}"
    yield name
    httpx.delete(f"{server.url}/aliases/{name}")


def point(server: Server, alias: str, index: str, status: int = 200) -> Any:
    return call(server, "PUT", f"/aliases/{alias}", {"index": index}, status=status)


def test_every_route_takes_an_alias(server: Server, index: str, other: str, alias: str) -> None:
    call(server, "GET", f"/indexes/{alias}", status=404)
    assert point(server, alias, index, 201) == {"alias": alias, "index": index}
    assert call(server, "GET", f"/indexes/{alias}")["name"] == index
    upsert(server, alias, {"id": "a", "text": TEXT, "metadata": {"year": 1}})
    place = f"/indexes/{alias}/documents"
    assert call(server, "GET", f"/indexes/{index}/documents/a")["text"] == TEXT
    call(server, "PATCH", f"{place}/a", {"title": "Bees"})
    assert call(server, "GET", f"{place}/a")["title"] == "Bees"
    assert len(call(server, "POST", f"{place}/get", {"ids": ["a"]})["documents"]) == 1
    query = {"index": alias, "text": TEXT}
    assert [hit["id"] for hit in call(server, "POST", "/similar", query)] == ["a"]
    assert call(server, "POST", f"/indexes/{alias}/duplicates", {"text": TEXT})[0]["id"] == "a"
    call(server, "GET", f"/indexes/{alias}/citation", status=404)
    # a switch: the same requests now reach the other index
    assert point(server, alias, other) == {"alias": alias, "index": other}
    assert call(server, "POST", "/similar", query) == []
    call(server, "GET", f"{place}/a", status=404)
    training = {"index": alias, "ids": ["a", "b", "c", "d"], "labels": ["x", "x", "y", "y"]}
    assert "4 of 4 are not" in call(server, "PUT", "/classifiers/c", training, status=422)["error"]
    point(server, alias, index)
    call(server, "DELETE", f"{place}/a", status=204)
    call(server, "GET", f"/indexes/{index}/documents/a", status=404)


def test_an_alias_is_no_index(server: Server, index: str, other: str, alias: str) -> None:
    assert "there is no index" in point(server, alias, "nowhere", 404)["error"]
    point(server, alias, index, 201)
    assert "DELETE /aliases" in call(server, "DELETE", f"/indexes/{alias}", status=409)["error"]
    call(server, "PUT", f"/indexes/{alias}", {}, status=409)
    assert "an index has that name" in point(server, other, index, 409)["error"]
    # no alias of an alias
    point(server, f"{alias}-2", alias, 404)
    assert alias not in call(server, "GET", "/indexes")["indexes"]
    assert {"alias": alias, "index": index} in call(server, "GET", "/aliases")["aliases"]
    assert call(server, "GET", f"/aliases/{alias}")["index"] == index
    call(server, "DELETE", f"/aliases/{alias}", status=204)
    for method in ("GET", "DELETE"):
        call(server, method, f"/aliases/{alias}", status=404)
    call(server, "GET", f"/indexes/{alias}", status=404)
    assert call(server, "GET", f"/indexes/{index}")["name"] == index


def test_an_alias_of_a_deleted_index_finds_nothing(server: Server, alias: str) -> None:
    name = f"t-{uuid.uuid4().hex[:12]}"
    call(server, "PUT", f"/indexes/{name}", {}, status=201)
    point(server, alias, name, 201)
    call(server, "DELETE", f"/indexes/{name}", status=204)
    call(server, "GET", f"/indexes/{alias}", status=404)
    call(server, "PUT", f"/indexes/{alias}", {}, status=409)


@run
async def test_processes_agree(replicas: Replicas) -> None:
    one, two = await replicas.open("a"), await replicas.open("a")
    await one.create("x", {})
    await one.create("y", {})
    await keyed.switch(two, "name", "x", None)
    assert await keyed.resolve(two, "name") == "x"
    assert await keyed.resolve(one, "name") in ("name", "x")
    await asyncio.sleep(keyed.SECONDS)
    assert await keyed.resolve(one, "name") == "x"
    # both saw the alias of x: only one switch succeeds
    switches = [keyed.switch(process, "name", "y", "x") for process in (one, two)]
    outcomes = await asyncio.gather(*switches, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes if outcome is not None] == [ConflictError]
    assert (await one.aliases.all()) == {"name": "y"}
    # another process creates an index of the alias's name, and the reverse, at the same moment
    made = await asyncio.gather(
        one.create("z", {}), keyed.switch(two, "z", "x", None), return_exceptions=True
    )
    assert [isinstance(outcome, ConflictError) for outcome in made].count(True) == 1
    with pytest.raises(ConflictError):
        await one.create("name", {})
    with pytest.raises(NotFoundError):
        await keyed.switch(one, "w", "name", None)


def test_rights_apply_to_the_index_and_replicas_follow(
    tmp_path: Path, light: tuple[str, ...]
) -> None:
    rights = {
        "admin": "",
        "reader": 'read_indexes = ["one"]',
        "named": 'read_indexes = ["live"]\nwrite_indexes = ["two"]',
        "owner": 'write_indexes = ["two", "own-*"]',
    }
    tokens = {name: file.new_token() for name in rights}
    keys = tmp_path / "keys.toml"
    keys.write_text("".join(entry(name, tokens[name], held) for name, held in rights.items()))

    def ask(server: Server, key: str, method: str, path: str, json: Any = None) -> int:
        headers = {"authorization": f"Bearer {tokens[key]}"}
        url = f"{server.url}{path}"
        return httpx.request(method, url, json=json, headers=headers, timeout=60).status_code

    flags = ["--keys-file", str(keys), "--index-path", str(tmp_path / "index"), *light]
    with serving(tmp_path / "log", *flags) as server:
        for name in ("one", "two"):
            assert ask(server, "admin", "PUT", f"/indexes/{name}", {}) == 201
        assert ask(server, "reader", "PUT", "/aliases/live", {"index": "one"}) == 403
        assert ask(server, "admin", "PUT", "/aliases/live", {"index": "one"}) == 201
        # a key for the alias's own name has no right to the index
        assert ask(server, "reader", "GET", "/indexes/live") == 200
        assert ask(server, "named", "GET", "/indexes/live") == 403
        search = {"index": "live", "text": "bees"}
        assert ask(server, "reader", "POST", "/similar", search) == 200
        assert ask(server, "named", "POST", "/similar", search) == 403
        # it may write to two, but the alias names one
        assert ask(server, "named", "PUT", "/aliases/live", {"index": "two"}) == 403
        assert ask(server, "named", "DELETE", "/aliases/live") == 403
        assert ask(server, "named", "GET", "/aliases/live") == 404
        # a key may only take names that are its own
        assert ask(server, "named", "PUT", "/aliases/theirs", {"index": "two"}) == 403
        assert ask(server, "owner", "PUT", "/aliases/own-two", {"index": "two"}) == 201
        assert ask(server, "named", "DELETE", "/aliases/own-two") == 403
        assert ask(server, "owner", "DELETE", "/aliases/own-two") == 204
        with serving(tmp_path / "second", *flags) as second:
            assert ask(second, "reader", "GET", "/indexes/live") == 200
            assert ask(second, "admin", "PUT", "/aliases/live", {"index": "two"}) == 200
            assert ask(second, "reader", "GET", "/indexes/live") == 403
            wait_until(lambda: ask(server, "reader", "GET", "/indexes/live") == 403, 10)
