"""Trainings in the background, over two replicas, kills included."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import lancedb
import pyarrow as pa
import pytest

from docsplit.heads.examples import Examples
from service.index.indexes import connect
from service.index.rows.keyed import KeyedTable
from service.jobs.table import LOST_SECONDS, Job, Jobs, only
from tests.conftest import Server, serving, wait_until
from tests.heads.test_classify import EXAMPLES, MONEY, SPORT, classify
from tests.index.conftest import call

LIVELY = "tests.heads.lively"
SMALL = Examples(SPORT + MONEY, [["sport"]] * 5 + [["money"]] * 5)


async def stored(folder: Path) -> int:
    """The number of example sets that are stored for jobs."""
    database = await lancedb.connect_async(str(folder / "heads"))
    return await (await database.open_table("job_examples")).count_rows()


async def held(folder: Path, name: str) -> tuple[Job, bytes]:
    """The training of a classifier, and its stored examples."""
    leases, heads = [await connect(f"{folder}/{part}") for part in ("leases", "heads")]
    job = await Jobs(leases).get(only("training", name))
    assert job is not None
    table = KeyedTable(heads, "job_examples", key=pa.string(), examples=pa.binary())
    row = await table.get(job.details["key"])
    assert row is not None
    return job, row["examples"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the replicas share."""
    return tmp_path_factory.mktemp("jobs")


@pytest.fixture(scope="module")
def pair(folder: Path) -> Iterator[tuple[Server, Server]]:
    """Two replicas; the second accepts few inputs in a request."""
    shared = ("--index-path", str(folder / "index"))
    with (
        serving(folder / "log", *shared, module=LIVELY) as one,
        serving(folder / "log2", *shared, "--max-batch-items", "8", module=LIVELY) as two,
    ):
        yield one, two


@pytest.fixture(scope="module")
def long(peps: dict[str, str]) -> dict[str, Any]:
    """More documents than a replica embeds during a test."""
    texts = [text[:4000] for text in list(peps.values())[:150]]
    return {"inputs": texts, "labels": ["even", "odd"] * 75}


def until(server: Server, name: str, reached: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """A replica's answer about a classifier once a condition holds."""
    for _ in range(600):
        said = call(server, "GET", f"/classifiers/{name}")
        if reached(said):
            return dict(said)
        time.sleep(0.2)
    raise AssertionError(f"it stayed {said}")


def outcomes(server: Server, outcome: str) -> float:
    found = httpx.get(f"{server.url}/metrics").text.splitlines()
    name = f'docsplit_training_jobs_total{{outcome="{outcome}"}} '
    return sum(float(line.removeprefix(name)) for line in found if line.startswith(name))


def test_a_small_set_is_trained_in_the_background_when_asked(pair: tuple[Server, Server]) -> None:
    one, two = pair
    answer = httpx.put(
        f"{one.url}/classifiers/asked", json=EXAMPLES | {"background": True}, timeout=60
    )
    assert answer.status_code == 202
    assert answer.headers["location"] == "/classifiers/asked"
    training = answer.json()["training"]
    assert (training["state"], training["total"]) == ("running", 10)
    assert "asked" in call(two, "GET", "/classifiers")["classifiers"]
    done = until(two, "asked", lambda said: "training" not in said)
    assert done["labels"] == {"money": 5, "sport": 5}
    assert classify(two, inputs=SPORT[0])[0][0]["label"] == "sport"
    # the process counts it after the last write
    wait_until(lambda: outcomes(one, "done") == 1, 30)
    call(two, "DELETE", "/classifiers/asked", status=204)


def test_more_inputs_than_a_request_may_have_become_a_job(pair: tuple[Server, Server]) -> None:
    two = pair[1]
    call(two, "POST", "/embed", {"inputs": EXAMPLES["inputs"]}, status=413)
    call(two, "PUT", "/classifiers/many", EXAMPLES, status=202)
    until(two, "many", lambda said: "training" not in said)
    call(two, "DELETE", "/classifiers/many", status=204)


def test_bad_examples_are_reported_and_deleted(pair: tuple[Server, Server], folder: Path) -> None:
    one, two = pair
    # U+200B is not white space to Python, and no token to the model
    body = {"inputs": [*SPORT, *MONEY[:4], "\u200b"], "labels": EXAMPLES["labels"]}
    call(one, "PUT", "/classifiers/bad", body | {"background": True}, status=202)
    said = until(two, "bad", lambda said: said["training"]["state"] != "running")
    assert said["training"]["state"] == "failed"
    assert "input 9 is empty" in said["training"]["error"]
    assert "PUT" in said["training"]["hint"]
    # the deletion of the examples follows the end of the job
    wait_until(lambda: asyncio.run(stored(folder / "index")) == 0, 30)
    assert "PUT" in call(two, "POST", "/classifiers/bad/retrain", status=409)["error"]
    refused = classify(two, 409, inputs="a", classifier="bad")
    assert "not trained yet" in refused["error"]
    call(one, "PUT", "/classifiers/bad", EXAMPLES)
    assert "training" not in call(two, "GET", "/classifiers/bad")
    call(one, "DELETE", "/classifiers/bad", status=204)


def test_another_replica_shows_and_ends_a_job(
    pair: tuple[Server, Server], long: dict[str, Any], folder: Path
) -> None:
    one, two = pair
    former = call(one, "PUT", "/classifiers/long", EXAMPLES)
    call(one, "PUT", "/classifiers/long", long | {"background": True}, status=202)
    said = until(two, "long", lambda said: said["training"]["done"] > 0)
    training = said.pop("training")
    assert (training["state"], training["stage"]) == ("running", "embedding")
    assert training["done"] < training["total"] == 150
    assert said == former
    assert classify(two, inputs=SPORT[0], classifier="long")[0][0]["label"] == "sport"
    for server in pair:
        refused = call(server, "PUT", "/classifiers/long", EXAMPLES, status=409)
        assert "DELETE" in refused["error"]
        call(server, "POST", "/classifiers/long/retrain", status=409)
    before = outcomes(one, "cancelled")
    call(two, "DELETE", "/classifiers/long", status=204)
    call(one, "GET", "/classifiers/long", status=404)
    assert asyncio.run(stored(folder / "index")) == 0
    for _ in range(300):
        if outcomes(one, "cancelled") > before:
            break
        time.sleep(0.1)
    assert outcomes(one, "cancelled") == before + 1
    call(one, "GET", "/classifiers/long", status=404)


def age(folder: Path, seconds: float) -> None:
    """Make all jobs' heartbeats this much older."""

    async def pass_by() -> None:
        database = await lancedb.connect_async(str(folder / "leases"))
        table = await database.open_table("work")
        await table.update(updates_sql={"heartbeat": f"heartbeat - {seconds}"})

    asyncio.run(pass_by())


def test_another_replica_takes_over_the_training_of_a_killed_one(
    pair: tuple[Server, Server], long: dict[str, Any], folder: Path
) -> None:
    one, two = pair
    texts = [
        f"{text} {pep[:1500]}" for text, pep in zip(SMALL.inputs, long["inputs"], strict=False)
    ]
    body = {"inputs": texts * 2, "labels": list(EXAMPLES["labels"]) * 2, "background": True}
    call(one, "PUT", "/classifiers/killed", body, status=202)
    one.process.send_signal(signal.SIGKILL)
    one.process.wait()
    said = call(two, "GET", "/classifiers/killed")
    assert said["training"]["state"] == "running"
    call(two, "POST", "/classifiers/killed/retrain", status=409)
    assert outcomes(two, "lost") == 0
    age(folder / "index", LOST_SECONDS + 1)
    done = until(two, "killed", lambda said: "training" not in said)
    assert done["labels"] == {"money": 10, "sport": 10}
    assert outcomes(two, "lost") == 1
    assert "job_resumed" in two.log.read_text()
    # the deletion of the examples follows the end of the job
    wait_until(lambda: asyncio.run(stored(folder / "index")) == 0, 30)


# the last test of this file: it ends the other replica of the pair
async def test_a_replica_that_is_shut_down_leaves_its_job_to_others(
    pair: tuple[Server, Server], long: dict[str, Any], folder: Path
) -> None:
    two = pair[1]
    call(two, "PUT", "/classifiers/left", long | {"background": True}, status=202)
    until(two, "left", lambda said: said["training"]["stage"] == "embedding")
    two.process.send_signal(signal.SIGTERM)
    assert two.process.wait(60) == 0
    job, blob = await held(folder / "index", "left")
    assert job.state == "left"
    assert Examples.from_bytes(blob).inputs == long["inputs"]
    assert "Traceback" not in two.log.read_text()
