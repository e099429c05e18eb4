"""Files of texts that a running service embeds in jobs."""

from __future__ import annotations

import asyncio
import io
import json
import re
import signal
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from service.index import sql
from service.index.storage.database import connect
from service.index.storage.layout import TEXTS as FOLDER
from service.jobs.table import LOST_SECONDS, Jobs
from service.textfiles.tables import Tables
from tests.conftest import Server, serving, wait_until

LINES = {"content-type": "application/x-ndjson"}
TEXTS = ["The cat sat on the mat. It slept.", "Taxes are due in May.", "A kitten plays."]


@pytest.fixture(scope="module")
def server(light_server: Server) -> Server:
    return light_server


def send(server: Server, body: bytes, **query: Any) -> httpx.Response:
    url = f"{server.url}/jobs/embed"
    return httpx.post(url, content=body, headers=LINES, params=query, timeout=60)


def begun(server: Server, *lines: Any, **query: Any) -> str:
    """The id of a job; each line is written as JSON."""
    answer = send(server, "\n".join(map(json.dumps, lines)).encode(), **query)
    assert answer.status_code == 202, answer.text
    job: str = answer.json()["id"]
    assert answer.headers["location"] == f"/jobs/{job}"
    return job


def state(server: Server, job: str) -> Any:
    answer = httpx.get(f"{server.url}/jobs/{job}")
    assert answer.status_code == 200, answer.text
    return answer.json()


def ended(server: Server, job: str, seconds: float = 60) -> Any:
    wait_until(lambda: state(server, job)["ended"] is not None, seconds)
    return state(server, job)


def result(server: Server, job: str, status: int = 200, **query: Any) -> Any:
    """The table of the vectors, or the error."""
    answer = httpx.get(f"{server.url}/jobs/{job}/result", params=query, timeout=60)
    assert answer.status_code == status, answer.text[:300]
    return pq.read_table(io.BytesIO(answer.content)) if status == 200 else answer.json()["error"]


def matrix(table: pa.Table) -> Any:
    """The vectors of the rows that have one."""
    return np.array([row for row in table["vector"].to_pylist() if row is not None])


def embedded(server: Server, texts: list[str], **options: Any) -> Any:
    body = {"inputs": texts, **options}
    return np.array(httpx.post(f"{server.url}/embed", json=body, timeout=60).json())


def folders(server: Server, job: str) -> list[Path]:
    """The tables of a job."""
    return sorted(server.log.with_name("index").glob(f"texts/*_{job}_*"))


def padded(number: int) -> dict[str, Any]:
    """A line so large that its text gets a block of its own."""
    return {"id": number, "text": f"text number {number}", "other": "x" * (1 << 19)}


def test_a_job_embeds_the_lines_of_a_file(server: Server) -> None:
    lines = [TEXTS[0], {"id": "two", "text": TEXTS[1]}, {"id": 3, "text": " "}]
    job = begun(server, *lines, {"text": TEXTS[2], "other": [{}]})
    done = ended(server, job)
    assert (done["kind"], done["index"], done["state"]) == ("embed", None, "succeeded")
    assert done["texts"] == {"total": 4, "done": 3, "failed": 1}

    table = result(server, job)
    assert table["id"].to_pylist() == [None, "two", "3", None]
    [none, _, error, _] = table["error"].to_pylist()
    assert none is None
    assert "is empty" in error
    assert table["vector"][2].as_py() is None
    expected = embedded(server, TEXTS)
    assert matrix(table).shape == expected.shape
    assert np.allclose(matrix(table), expected, atol=1e-3)
    assert not np.allclose(matrix(table)[::-1], expected, atol=1e-1)
    bits = result(server, job, encoding_format="ubinary")
    assert bits.schema.field("vector").type == pa.list_(pa.uint8(), expected.shape[1] // 8)
    alike = embedded(server, TEXTS, encoding_format="ubinary") == matrix(bits)
    assert alike.mean() > 0.95

    long = [*TEXTS, f"{TEXTS[0]} " * 60 + f"{TEXTS[1]} " * 100]
    short = begun(server, *long, dimensions=8, truncate=True)
    assert ended(server, short)["texts"]["done"] == 4
    found, expected = matrix(result(server, short)), embedded(server, long, dimensions=8)
    assert np.allclose(found[:3], expected[:3], atol=1e-3)
    assert not np.allclose(found[3], expected[3], atol=1e-2)
    cut = embedded(server, long, dimensions=8, truncate=True)
    assert np.allclose(found[3], cut[3], atol=1e-3)

    # the texts are gone
    assert [path.name[-14:] for path in folders(server, job)] == ["_vectors.lance"]
    assert httpx.delete(f"{server.url}/jobs/{job}").json()["state"] == "succeeded"
    assert folders(server, job) == []
    result(server, job, 404)


def test_a_wrong_line_is_refused_by_its_number(server: Server) -> None:
    good = b'"a text"\n\n{"id": "b", "text": "another"}\n'
    wrong = {
        b"nope": "line 3: it is not valid JSON",
        b'{"id": "c"}': "line 3: it has no text",
        b'{"text": 5}': "line 3: text: ",
        b"[]": "line 3: text: ",
        b'{"id": true, "text": "a"}': "line 3: its id must be",
        b'{"id": "\\u0000", "text": "a"}': "line 3: its id must be",
        b'{"id": "\\ud800", "text": "a"}': "line 3: it is not valid JSON",
        b'"\xff"': "line 3: it is not valid JSON",
    }
    before = len(list(server.log.with_name("index").glob("texts/*")))
    for line, reason in wrong.items():
        answer = send(server, good + line + b"\n" + good)
        assert answer.status_code == 422
        assert reason in answer.json()["error"]
        assert line.decode("latin-1") not in answer.text
    assert send(server, b"\n \n").status_code == 400
    assert send(server, good, dimensions=4000).status_code == 422
    assert send(server, good, prompt_name="no such").status_code == 422
    url = f"{server.url}/jobs/embed"
    assert httpx.post(url, content=good).status_code == 415
    packed = {**LINES, "content-encoding": "gzip"}
    assert httpx.post(url, content=good, headers=packed).status_code == 415
    # they leave no tables
    assert len(list(server.log.with_name("index").glob("texts/*"))) == before


def test_a_cancelled_job_leaves_no_texts(server: Server) -> None:
    running = begun(server, *map(padded, range(20)))
    waiting = begun(server, "late")
    assert "has not ended" in result(server, waiting, 409)
    for job in (waiting, running):
        cancelled = httpx.delete(f"{server.url}/jobs/{job}").json()
        assert cancelled["state"] == "cancelled"
        assert cancelled["ended"] is not None
        assert folders(server, job) == []
        assert "did not succeed" in result(server, job, 409)
    assert state(server, running)["texts"]["done"] < 20


def begins(server: Server, job: str) -> int:
    """Blocks of vectors that a job has begun to write."""
    found = [path for path in folders(server, job) if path.name.endswith("_vectors.lance")]
    return sum(len(list(path.glob("data/*.lance"))) for path in found)


async def silent_for_long(folder: Path, job_id: str) -> int:
    """Let a job look as if its replica had ended long ago; its written blocks."""
    jobs = Jobs(await connect(str(folder / "leases")))
    before = time.time() - LOST_SECONDS - 1
    assert await jobs._table.change(sql.compare("id", "=", job_id), heartbeat=before)
    tables = Tables(await connect(str(folder / FOLDER)))
    [place] = [one for one in await tables.places() if one.job == job_id]
    written = await tables.find(place)
    return 0 if written is None else written.blocks


def test_another_replica_goes_on_with_a_job(
    server: Server, light: tuple[str, ...], tmp_path: Path
) -> None:
    index = server.log.with_name("index")
    with serving(tmp_path / "log", "--index-path", str(index), *light) as other:
        job = begun(other, *map(padded, range(12)), normalize=False)
        wait_until(lambda: begins(server, job) >= 3, 30)
        other.process.send_signal(signal.SIGKILL)
        other.process.wait()
    assert state(server, job)["ended"] is None
    before = server.metric("docsplit_documents_total")
    kept = asyncio.run(silent_for_long(index, job))
    assert 2 <= kept < 12
    assert ended(server, job)["texts"] == {"total": 12, "done": 12, "failed": 0}
    # nothing is embedded twice
    assert server.metric("docsplit_documents_total") - before == 12 - kept
    table = result(server, job)
    assert table["id"].to_pylist() == [str(number) for number in range(12)]
    expected = embedded(server, [f"text number {number}" for number in range(12)], normalize=False)
    assert np.allclose(matrix(table), expected, atol=1e-2)
    assert not np.allclose(matrix(table)[::-1], expected, atol=1e-2)
    assert re.search(f'"job_resumed".*{job}|{job}.*"job_resumed"', server.log.read_text())
    httpx.delete(f"{server.url}/jobs/{job}")


def table_of(**columns: Any) -> bytes:
    written = io.BytesIO()
    pq.write_table(pa.table(columns), written)
    return written.getvalue()


def test_a_parquet_file_is_read_in_a_confined_process(server: Server) -> None:
    def sent(body: bytes) -> httpx.Response:
        kind = {"content-type": "application/vnd.apache.parquet"}
        return httpx.post(f"{server.url}/jobs/embed", content=body, headers=kind, timeout=60)

    words = pa.array([TEXTS[0], None, TEXTS[2]]).dictionary_encode()
    answer = sent(table_of(id=[1, 2, 3], other=[[1], [], []], text=words))
    assert answer.status_code == 202, answer.text
    job = answer.json()["id"]
    assert ended(server, job)["texts"] == {"total": 3, "done": 2, "failed": 1}
    table = result(server, job)
    assert table["id"].to_pylist() == ["1", "2", "3"]
    expected = embedded(server, [TEXTS[0], TEXTS[2]])
    assert np.allclose(matrix(table), expected, atol=1e-3)
    assert not np.allclose(matrix(table)[::-1], expected, atol=1e-1)

    answer = sent(table_of(text=TEXTS, id=["a", "b", "\n"]))
    assert answer.status_code == 422
    assert "row 3: its id must be" in answer.json()["error"]
    assert server.metric("docsplit_upload_bytes") == 0


@pytest.mark.parametrize("kind", ["files", "map"])
def test_only_jobs_that_embed_have_a_result(server: Server, kind: str) -> None:
    index = server.log.with_name("index")

    async def add() -> str:
        jobs = Jobs(await connect(str(index / "leases")))
        counts = dict.fromkeys(("files", "done", "failed", "written", "unchanged", "refused"), 0)
        return (await jobs.add(kind, "none", "", counts)).id  # type: ignore[arg-type]

    assert "no result" in result(server, asyncio.run(add()), 409)
