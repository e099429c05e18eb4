"""Jobs that compute maps, and the routes that show maps and topics."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pytest

from features.maps import background
from features.maps.background import Mapping, Progress
from service.errors import NotFoundError, UnavailableError
from service.jobs.runner import Task
from service.metrics import Metrics
from tests.conftest import NIGHTLY, Server, until, wait_until
from tests.index.conftest import call, upsert
from tests.integrity import stores

# of each subject. With fewer than 30 documents no process imports openTSNE; test_maps.py does.
EACH = 20 if NIGHTLY else 12
SUBJECTS = {"bread": "Knead the flour with yeast, {} times", "chess": "Rook takes pawn, move {}"}


def floats(text: str) -> Any:
    return np.frombuffer(base64.b64decode(text), "<f4").reshape(-1, 2)


def integers(text: str) -> list[int]:
    return np.frombuffer(base64.b64decode(text), "<i4").tolist()


def test_a_job_computes_the_map_that_the_routes_show(server: Server, index: str) -> None:
    pytest.importorskip("openTSNE", reason="the extra map is not installed")
    documents: list[dict[str, Any]] = [
        {"id": f"{subject}-{at:02}", "text": text.format(at), "metadata": {"status": subject}}
        for subject, text in SUBJECTS.items()
        for at in range(EACH)
    ]
    upsert(server, index, *documents)
    for path in ("map", "topics"):
        assert "no map" in call(server, "GET", f"/indexes/{index}/{path}", status=404)["error"]
    answer = httpx.post(f"{server.url}/indexes/{index}/map", timeout=60)
    job = answer.json()
    assert (answer.status_code, answer.headers["location"]) == (202, f"/jobs/{job['id']}")
    assert (job["kind"], job["step"]["done"], job["files"]["total"]) == ("map", 0.0, 0)
    # computed after it, one at a time
    call(server, "PUT", "/indexes/soon-gone", {}, status=201)
    gone = call(server, "POST", "/indexes/soon-gone/map", status=202)
    call(server, "DELETE", "/indexes/soon-gone", status=204)
    # a second request waits for the same job
    again = call(server, "POST", f"/indexes/{index}/map", status=202)
    wait_until(lambda: call(server, "GET", f"/jobs/{job['id']}")["ended"] is not None, 90)
    ended = call(server, "GET", f"/jobs/{job['id']}")
    assert (ended["state"], ended["error"]) == ("succeeded", None)
    assert again["id"] == job["id"]
    check_deleted(server, gone["id"])

    whole = call(server, "GET", f"/indexes/{index}/map?field=status")
    ids = sorted(document["id"] for document in documents)
    assert (whole["ids"], whole["total"], whole["next"]) == (ids, 2 * EACH, None)
    assert floats(whole["positions"]).shape == (2 * EACH, 2)
    values = whole["values"]
    named = [values["values"][code] for code in integers(values["codes"])]
    assert named == [name.split("-")[0] for name in ids]
    topics = call(server, "GET", f"/indexes/{index}/topics")
    assert topics["made"] == whole["made"]
    assert topics["made"].endswith("Z")
    sizes = np.bincount(
        np.array(integers(whole["topics"])) + 1, minlength=len(topics["topics"]) + 1
    )
    assert [topics["without"], *(topic["size"] for topic in topics["topics"])] == sizes.tolist()

    path = f"/indexes/{index}/map?limit={EACH + 5}"
    pages = [call(server, "GET", path)]
    pages.append(call(server, "GET", f"{path}&after={pages[0]['next']}"))
    assert [*pages[0]["ids"], *pages[1]["ids"]] == ids
    joined = np.concatenate([floats(page["positions"]) for page in pages])
    assert np.array_equal(joined, floats(whole["positions"]))
    sample = call(server, "GET", f"/indexes/{index}/map?limit=10&sample=true")
    assert (len(sample["ids"]), sample["next"]) == (10, None)
    assert set(sample["ids"]) < set(ids) != set(ids[:10])

    upsert(server, index, {"id": "new", "text": SUBJECTS["chess"].format(77)})
    new = call(server, "GET", f"/indexes/{index}/map")
    assert (new["total"], new["placed"], new["version"]) == (2 * EACH + 1, 1, whole["version"])
    refused = call(server, "GET", f"/indexes/{index}/map?field=weight", status=422)
    assert "string, integer and boolean" in refused["error"]
    check_labels(server, index, [*ids, "new"])
    check_area(server, index)


def check_deleted(server: Server, job: str) -> None:
    """The job of an index that was deleted meanwhile says so."""
    wait_until(lambda: call(server, "GET", f"/jobs/{job}")["ended"] is not None, 90)
    ended = call(server, "GET", f"/jobs/{job}")
    assert ended["state"] == "failed"
    assert "no index of that name" in ended["error"]


def check_labels(server: Server, index: str, ids: list[str]) -> None:
    """The labels on the map are those that ``POST /classify`` gives the same texts."""
    path = f"/indexes/{index}/map?classifier={index}"
    assert "no classifier" in call(server, "GET", path, status=404)["error"]
    some = [name for name in ids if name.endswith(("0", "1", "2"))]
    examples = {"index": index, "ids": some, "labels": [name.split("-")[0] for name in some]}
    call(server, "PUT", f"/classifiers/{index}", examples)
    whole = call(server, "GET", path)
    assert (sorted(whole["ids"]), whole["labels"]["pending"]) == (sorted(ids), 0)
    labels = [whole["labels"]["labels"][code] for code in integers(whole["labels"]["codes"])]
    scores = np.frombuffer(base64.b64decode(whole["labels"]["scores"]), "<f4")
    wish = {"ids": whole["ids"], "text": True}
    texts = {
        one["id"]: one["text"]
        for one in call(server, "POST", f"/indexes/{index}/documents/get", wish)["documents"]
    }
    inputs = [texts[name] for name in whole["ids"]]
    wish = {"inputs": inputs, "classifier": index, "top_k": 1}
    given = [best for [best] in call(server, "POST", "/classify", wish)]
    assert labels == [one["label"] for one in given]
    assert set(labels) == set(SUBJECTS)
    np.testing.assert_allclose(scores, [one["score"] for one in given], atol=0.02)
    page = call(server, "GET", f"{path}&limit=3&after={whole['ids'][4]}")
    assert [page["labels"]["labels"][c] for c in integers(page["labels"]["codes"])] == labels[5:8]
    call(server, "DELETE", f"/classifiers/{index}", status=204)


def check_area(server: Server, index: str) -> None:
    """Searches find the documents inside a line around those of chess, and count only these."""
    whole = call(server, "GET", f"/indexes/{index}/map")
    own = [at for at, name in enumerate(whole["ids"]) if name.startswith("chess")]
    places = floats(whole["positions"])
    (left, low), (right, high) = (places[own].min(axis=0) - 0.1, places[own].max(axis=0) + 0.1)
    corners = np.array([[left, low], [right, low], [right, high], [left, high]]).tolist()
    inside = (places[:, 0] > left) & (places[:, 0] < right)
    inside &= (places[:, 1] > low) & (places[:, 1] < high)
    expected = {name for name, one in zip(whole["ids"], inside, strict=True) if one}
    assert len(expected) < len(whole["ids"])
    body = {"index": index, "text": "flour", "area": {"map": whole["version"], "corners": corners}}
    for mode in ("cosine", "hybrid"):
        wish = body | {"mode": mode, "top_k": 100, "facets": ["status"]}
        answer = call(server, "POST", "/similar", wish)
        assert {hit["id"] for hit in answer["hits"]} == expected
        counts = {one["value"]: one["count"] for one in answer["facets"]["status"]["values"]}
        assert counts["chess"] == EACH
    both = body | {"filter": {"field": "status", "eq": "bread"}, "top_k": 100}
    hits = call(server, "POST", "/similar", both)
    assert {hit["id"] for hit in hits} == {name for name in expected if name.startswith("bread")}
    found = call(server, "POST", "/passages", body | {"top_k": 100})
    assert {hit["id"] for hit in found} == expected
    wrongs: list[list[list[float]]] = [corners[:2], [[1, 2, 3]] * 3, [[1, 1e10]] * 3]
    for wrong in wrongs:
        refused = body | {"area": {"map": whole["version"], "corners": wrong}}
        call(server, "POST", "/similar", refused, status=422)
    other = body | {"area": {"map": "another", "corners": corners}}
    assert "another map" in call(server, "POST", "/passages", other, status=409)["error"]


@pytest.mark.parametrize("during", [False, True])
def test_a_job_of_a_deleted_index_says_so_and_starts_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, during: bool
) -> None:
    # whether the index is deleted only when the process has started
    begun: list[Task] = []
    started: list[str] = []

    async def scenario() -> None:
        indexes = await stores.open_indexes(tmp_path)
        await indexes.create("x", {})

        async def opened() -> Any:
            return indexes

        async def begin(task: Task) -> None:
            begun.append(task)

        async def ends_early(_: str, table: str, *__: object) -> None:
            started.append(table)
            await indexes.drop("x")
            raise UnavailableError("it ended early")

        monkeypatch.setattr(background, "_computed", ends_early)
        store: Any = SimpleNamespace(indexes=opened, path=str(tmp_path))
        runner: Any = SimpleNamespace(begin=begin, register=lambda _: None)
        attempt: Any = None
        index = await indexes.open("x")
        await Mapping(store, runner, Metrics())._begin("x", index, "")
        if not during:
            await indexes.drop("x")
        with pytest.raises(NotFoundError, match="no index of that name"):
            await begun[0].work(attempt)
        assert started == ([index.table.name] if during else [])

    stores.run(scenario())


def test_a_computation_that_fails_says_so(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="ended early"):
        asyncio.run(background._computed(str(tmp_path), "missing", Progress(0)))


def test_a_cancelled_computation_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[asyncio.subprocess.Process] = []
    start = asyncio.create_subprocess_exec

    async def remember(*args: Any, **options: Any) -> asyncio.subprocess.Process:
        started.append(await start(*args, **options))
        return started[-1]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", remember)

    async def cancel() -> None:
        task = asyncio.create_task(background._computed("/missing", "missing", Progress(0)))
        await until(lambda: bool(started))
        assert started[0].returncode is None
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert started[0].returncode is not None

    asyncio.run(cancel())
