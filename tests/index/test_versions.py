"""Writes under a condition on a document's version: only one of several succeeds."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import httpx
import pytest

from service.errors import NotFoundError, OvertakenError, VersionError
from service.index import commits, sql
from service.index.commits import Upsert, Writer
from service.index.documents import Index
from service.index.indexes import Indexes
from service.index.maintenance import optimize
from service.index.rows import versions
from tests.conftest import NIGHTLY, ROOT, Server
from tests.index.conftest import call
from tests.index.processes import HOUR, Replicas, record, run

TURNS = 12 if NIGHTLY else 8


async def upsert(index: Index, name: str, version: str | None, text: str = "text") -> Upsert:
    wanted = {} if version is None else {name: versions.condition(version)}
    return Upsert(await index.rows([record(name, text)]), wanted)


async def present(index: Index, name: str) -> str:
    version = versions.present((await index.standing([name])).get(name))
    return "" if version is None else versions.text(version)


def wins(outcomes: Sequence[object]) -> int:
    return sum(not isinstance(outcome, Exception) for outcome in outcomes)


async def race(one: Indexes, two: Indexes, name: str) -> int:
    """The number of successes when two processes write over the same state."""
    indexes = [await one.open("x"), await two.open("x")]
    version = await present(indexes[0], name)
    changes = [await upsert(index, name, version) for index in indexes]
    written = [commits.write(index, [it]) for index, it in zip(indexes, changes, strict=True)]
    return sum(error is None for [error] in await asyncio.gather(*written))


@run
async def test_one_of_two_processes_wins_each_time(replicas: Replicas) -> None:
    one, two = await replicas.open("a"), await replicas.open("a")
    await one.create("x", {})
    for _ in range(TURNS):
        assert await race(one, two, "doc") == 1


@run
async def test_without_the_condition_in_the_commit_both_would_win(replicas: Replicas) -> None:
    """The control: a check before a commit is not enough."""
    one, two = await replicas.open("a"), await replicas.open("a")
    await one.create("x", {})
    indexes = [await one.open("x"), await two.open("x")]
    await indexes[0].put([record("doc")])
    held = [await index.standing(["doc"]) for index in indexes]
    version = versions.condition(await present(indexes[0], "doc"))
    assert not any(commits.check({"doc": version}, standing) for standing in held)
    writes = (index.put([record("doc")]) for index in indexes)
    assert wins(await asyncio.gather(*writes, return_exceptions=True)) == 2


@run
async def test_conditions_hold_while_the_index_is_compacted(replicas: Replicas) -> None:
    one, two = await replicas.open("a"), await replicas.open("a")
    await one.create("x", {})
    done = False

    async def compact() -> None:
        index = await one.open("x")
        while not done:
            await optimize(index.table)

    task = asyncio.create_task(compact())
    try:
        for _ in range(TURNS):
            assert await race(one, two, "doc") == 1
    finally:
        done = True
        await task


@run
async def test_a_write_with_an_older_time_is_not_lost(replicas: Replicas) -> None:
    a = await replicas.open("a")
    await a.create("x", {})
    index = await a.open("x")
    await index.put([record("doc", "first"), record("other", "first")])
    rows = await index.rows([record("doc", "second"), record("other", "second")])
    early = (await index.updated(["doc"]))["doc"]
    # meanwhile another process with a fast clock has written
    await index.merge([record("doc", "theirs")], [early + HOUR])
    times = await index.write(rows, [early + 1, early + 1])
    assert times == [early + HOUR + 1, early + 1]
    assert [(await index.get(name)).text for name in ("doc", "other")] == ["second", "second"]


@run
async def test_a_conditional_deletion(replicas: Replicas) -> None:
    one, two = await replicas.open("a"), await replicas.open("a")
    await one.create("x", {})
    index, other = await one.open("x"), await two.open("x")
    await index.put([record("doc")])
    first = versions.condition(await present(index, "doc"))
    await other.put([record("doc", "changed")])
    with pytest.raises(VersionError) as raised:
        await commits.delete(index, "doc", first)
    second = raised.value.present["doc"]
    assert second is not None
    assert versions.text(second) == await present(other, "doc")
    await commits.delete(index, "doc", frozenset([second]))
    with pytest.raises(NotFoundError):
        await commits.delete(index, "doc", frozenset([second]))


@contextmanager
def between_check_and_commit(other: Callable[[], Awaitable[object]]) -> Iterator[None]:
    """Another process writes after the next check of a condition, and before the commit."""
    waiting = [other]

    async def late(commit: Callable[..., Any], *given: Any, **options: Any) -> Any:
        if waiting:
            await waiting.pop()()
        return await commit(*given, **options)

    with pytest.MonkeyPatch.context() as patch:
        for name in ("_create", "_replace"):
            patch.setattr(commits, name, partial(late, getattr(commits, name)))
        yield
    assert not waiting


@run
async def test_a_condition_that_holds_again_refuses_nothing(replicas: Replicas) -> None:
    one, two = await replicas.open("a"), await replicas.open("a")
    await one.create("x", {})
    index, other = await one.open("x"), await two.open("x")

    # the clock of the other process is fast
    def written(late: int) -> Callable[[], Awaitable[object]]:
        return lambda: other.merge([record("doc", "theirs")], [versions.microseconds() + late])

    async def created_and_deleted() -> None:
        await written(HOUR)()
        await other.tombstone({"doc": versions.microseconds() + 2 * HOUR})

    with between_check_and_commit(created_and_deleted):
        creation = await upsert(index, "doc", "", "first")
        assert await commits.write(index, [creation]) == [None]
    assert (await index.get("doc")).text == "first"
    with between_check_and_commit(written(3 * HOUR)):
        change = await upsert(index, "doc", "*", "second")
        assert await commits.write(index, [change]) == [None]
    assert (await index.get("doc")).text == "second"
    assert versions.text(change.times["doc"]) == await present(index, "doc")
    # the control: an exact version does not hold again
    with between_check_and_commit(written(4 * HOUR)):
        refused = await upsert(index, "doc", await present(index, "doc"), "third")
        [error] = await commits.write(index, [refused])
    assert error is not None
    assert error.present == (await index.updated(["doc"]))
    with between_check_and_commit(written(5 * HOUR)):
        await commits.delete(index, "doc", "there")
    assert not await index.has("doc")


@run
async def test_requests_of_one_process_keep_their_order(replicas: Replicas) -> None:
    a = await replicas.open("a")
    await a.create("x", {})
    index = await a.open("x")
    uid = index.identity.uid
    writer = Writer(a, "x", lambda _: None)
    changes = [
        await upsert(index, "doc", version, text)
        for version, text in ((None, "one"), ("", "two"), (None, "three"), ("*", "four"))
    ]
    outcomes = await asyncio.gather(
        *(writer.write(uid, c) for c in changes), return_exceptions=True
    )
    assert [isinstance(outcome, VersionError) for outcome in outcomes] == [
        False,
        True,
        False,
        False,
    ]
    assert (await index.get("doc")).text == "four"
    versions = [outcome["doc"] for outcome in outcomes if isinstance(outcome, dict)]
    assert sorted(set(versions)) == versions


@run
async def test_a_failed_condition_refuses_the_whole_request(replicas: Replicas) -> None:
    a = await replicas.open("a")
    await a.create("x", {})
    index = await a.open("x")
    rows = await index.rows([record("one"), record("two"), record("three")])
    [error] = await commits.write(index, [Upsert(rows, {"two": "there", "three": "absent"})])
    assert error is not None
    assert error.present == {"two": None}
    assert not error.written
    assert await index.count() == 0


def path(index: str, name: str = "") -> str:
    return f"/indexes/{index}/documents{name}"


def test_versions_over_http(server: Server, index: str) -> None:
    document = {"id": "a", "text": "a text"}
    create = {"if-none-match": "*"}
    answer = call(server, "POST", path(index), {"documents": [document]}, headers=create)
    [first] = answer["versions"]
    said = call(server, "POST", path(index), {"documents": [document]}, status=412, headers=create)
    assert said["conflicts"] == [{"position": 0, "version": first}]
    assert said["error"].startswith("documents.0: there is a document of that id")
    got = httpx.get(f"{server.url}{path(index, '/a')}")
    assert (got.headers["etag"], got.json()["version"]) == (f'"{first}"', first)
    [listed] = call(server, "GET", path(index))["documents"]
    assert listed["version"] == first
    over = {"if-match": got.headers["etag"]}
    changed = document | {"title": "changed"}
    answer = call(server, "POST", path(index), {"documents": [changed]}, headers=over)
    [second] = answer["versions"]
    assert second != first
    # the same request again, as from a client that lost the answer
    repeated = httpx.post(
        f"{server.url}{path(index)}", json={"documents": [changed]}, headers=over, timeout=60
    )
    assert repeated.status_code == 412
    assert repeated.headers["etag"] == f'"{second}"'
    both = [changed | {"if_version": second}, {"id": "b", "text": "new", "if_version": ""}]
    answer = call(server, "POST", path(index), {"documents": both})
    assert len(answer["versions"]) == 2
    said = call(server, "POST", path(index), {"documents": both}, status=412)
    present = [
        {"position": place, "version": version} for place, version in enumerate(answer["versions"])
    ]
    assert (said["conflicts"], said["written"]) == (present, [])


def test_a_repeated_deletion_undoes_nothing(server: Server, index: str) -> None:
    document = {"id": "a/b", "text": "a text"}
    [first] = call(server, "POST", path(index), {"documents": [document]})["versions"]
    over = {"if-match": f'"{first}"'}
    call(server, "DELETE", path(index, "/a%2Fb"), status=204, headers=over)
    call(server, "DELETE", path(index, "/a%2Fb"), status=404, headers=over)
    # another client writes it again
    [second] = call(server, "POST", path(index), {"documents": [document]})["versions"]
    said = call(server, "DELETE", path(index, "/a%2Fb"), status=412, headers=over)
    assert said["conflicts"] == [{"position": 0, "version": second}]
    assert said["error"].startswith("the document has another version")
    assert call(server, "GET", path(index, "/a%2Fb"))["version"] == second
    call(server, "DELETE", path(index, "/a%2Fb"), status=204, headers={"if-match": "*"})


@pytest.mark.parametrize(
    ("headers", "documents", "status"),
    [
        ({"if-match": "abc"}, 1, 422),
        ({"if-match": '"abc", W/"def"'}, 1, 412),
        ({"if-match": '"no version"'}, 1, 412),
        ({"if-match": '"*"'}, 1, 412),
        ({"if-match": "*"}, 1, 412),
        ({"if-match": '""'}, 1, 412),
        ({"if-match": "*"}, 2, 422),
        ({"if-none-match": '"abc"'}, 1, 422),
        ({"if-none-match": "*", "if-match": "*"}, 1, 422),
    ],
)
def test_conditions_that_are_refused(
    server: Server, empty: str, headers: dict[str, str], documents: int, status: int
) -> None:
    body = {"documents": [{"id": str(number), "text": "a text"} for number in range(documents)]}
    call(server, "POST", path(empty), body, status=status, headers=headers)
    assert call(server, "GET", path(empty))["documents"] == []


def test_a_change_or_deletion_takes_no_condition_that_there_is_no_document(
    server: Server, index: str
) -> None:
    call(server, "POST", path(index), {"documents": [{"id": "a", "text": "a text"}]})
    absent = {"if-none-match": "*"}
    said = call(server, "DELETE", path(index, "/a"), status=422, headers=absent)
    assert "if-match" in said["error"]
    call(server, "PATCH", path(index, "/a"), {"title": "b"}, status=422, headers=absent)
    assert call(server, "GET", path(index, "/a"))["title"] is None


def test_a_client_that_has_the_current_version_gets_no_body(server: Server, index: str) -> None:
    def read(if_none_match: str) -> httpx.Response:
        headers = {"if-none-match": if_none_match}
        return httpx.get(f"{server.url}{path(index, '/a')}", headers=headers, timeout=60)

    call(server, "POST", path(index), {"documents": [{"id": "a", "text": "a text"}]})
    tag = f'"{call(server, "GET", path(index, "/a"))["version"]}"'
    for named in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        answer = read(named)
        assert (answer.status_code, answer.headers["etag"], answer.content) == (304, tag, b"")
    for other in ('"other"', tag.strip('"'), ""):
        assert read(other).json()["text"] == "a text"
    call(server, "PATCH", path(index, "/a"), {"title": "new"})
    assert read(tag).json()["title"] == "new"


def test_a_condition_on_a_missing_document_says_that_it_is_missing(
    server: Server, empty: str
) -> None:
    document = {"id": "a", "text": "a text", "if_version": "64a1f0"}
    said = call(server, "POST", path(empty), {"documents": [document]}, status=412)
    assert "there is no document of that id" in said["error"]
    assert said["conflicts"] == [{"position": 0, "version": None}]


def test_conditions_are_read_without_the_import_of_lancedb() -> None:
    # on the event loop the import would delay all requests
    program = (
        "import sys; from service.server.routes.stored.documents import header; "
        "assert header('\"1f\"') == {31}; sys.exit('lancedb' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)


@run
async def test_a_conditional_write_that_changes_nothing_ends(replicas: Replicas) -> None:
    indexes = await replicas.open("a")
    await indexes.create("x", {})
    index = await indexes.open("x")
    await commits.write(index, [await upsert(index, "doc", None)])
    version = await present(index, "doc")
    # as if LanceDB did not find the row that the service means
    with pytest.MonkeyPatch.context() as broken:
        broken.setattr(versions, "clause", lambda _: sql.NEVER)
        with pytest.raises(OvertakenError):
            await commits.write(index, [await upsert(index, "doc", version)])
        with pytest.raises(OvertakenError):
            await commits.delete(index, "doc", "there")
    assert await present(index, "doc") == version
    # the control
    assert await commits.write(index, [await upsert(index, "doc", version)]) == [None]
    assert await commits.delete(index, "doc", "there")
