"""The programs of docs/how-to/export-index.md that load an export into other engines.

Each runs if its engine is installed, in a form that needs no server, and must find the same nearest
documents as a comparison of all vectors.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from service.index.rows.vectors import vector_matrix
from tests.conftest import ROOT
from tests.index.exporting import export
from tests.integrity import stores

PAGE = ROOT / "docs" / "how-to" / "export-index.md"
FOLDER = Path("exported", "papers")
MOST = 5


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an export where the programs expect it."""
    root = tmp_path_factory.mktemp("engines")

    async def make() -> None:
        await stores.make(root / "store")
        await export(root / "store", root / FOLDER, rows=8)

    stores.run(make())
    return root


@pytest.fixture
def run(exported: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    def program(engine: str, **replaced: str) -> dict[str, Any]:
        """Run the program below a heading; returns its variables."""
        section = PAGE.read_text("utf-8").split(f"### {engine}\n")[1]
        [code, *_] = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
        assert all(old in code for old in replaced)
        for old, new in {"384": str(stores.DIMENSIONS), **replaced}.items():
            code = code.replace(old, new)
        held: dict[str, Any] = {}
        exec(compile(code, engine, "exec"), held)
        return held

    monkeypatch.chdir(exported)
    return program


@pytest.fixture
def found(exported: Path) -> pa.Table:
    return pq.read_table(exported / FOLDER)


def check(found: pa.Table, search: Callable[[np.ndarray[Any, Any]], list[str]]) -> None:
    """Compare searches for each document with a comparison of all vectors."""
    vectors, ids = vector_matrix(found), found["id"].to_pylist()
    assert len(ids) == len(stores.names("x"))
    for vector in vectors:
        order = np.argsort(-(vectors @ vector), kind="stable")[:MOST]
        assert search(vector) == [ids[place] for place in order]


# these libraries warn of their own parts
@pytest.mark.filterwarnings("ignore")
def test_qdrant(run: Callable[..., dict[str, Any]], found: pa.Table) -> None:
    pytest.importorskip("qdrant_client")
    client = run("Qdrant", **{'"http://localhost:6333"': '":memory:"'})["client"]

    def search(vector: np.ndarray[Any, Any]) -> list[str]:
        hits = client.query_points("papers", query=vector.tolist(), limit=MOST).points
        return [hit.payload["id"] for hit in hits]

    check(found, search)
    [hit] = client.query_points("papers", query=vector_matrix(found)[0].tolist(), limit=1).points
    assert hit.payload["note"] == f"of {hit.payload['id']}"


@pytest.mark.filterwarnings("ignore")
def test_milvus(run: Callable[..., dict[str, Any]], found: pa.Table, tmp_path: Path) -> None:
    pytest.importorskip("pymilvus")
    pytest.importorskip("milvus_lite")
    client = run("Milvus", **{'"http://localhost:19530"': repr(str(tmp_path / "lite.db"))})[
        "client"
    ]

    def search(vector: np.ndarray[Any, Any]) -> list[str]:
        [hits] = client.search("papers", [vector.tolist()], limit=MOST)
        return [hit["id"] for hit in hits]

    check(found, search)
    client.close()


@pytest.mark.filterwarnings("ignore")
def test_pgvector(run: Callable[..., dict[str, Any]], found: pa.Table, tmp_path: Path) -> None:
    pgserver = pytest.importorskip("pgserver")
    psycopg = pytest.importorskip("psycopg")
    register = pytest.importorskip("pgvector.psycopg").register_vector
    server = pgserver.get_server(tmp_path / "data")
    try:
        uri = server.get_uri()
        run("PostgreSQL with pgvector", **{'"postgresql://localhost/documents"': repr(uri)})
        with psycopg.connect(uri) as connection:
            register(connection)

            def search(vector: np.ndarray[Any, Any]) -> list[str]:
                query = "SELECT id FROM papers ORDER BY vector <=> %s LIMIT %s"
                return [name for (name,) in connection.execute(query, (vector, MOST))]

            check(found, search)
            years = connection.execute("SELECT id, metadata->>'year', version FROM papers")
            versions = dict(zip(found["id"].to_pylist(), found["version"].to_pylist(), strict=True))
            for name, year, version in years:
                assert (int(year), version) == (100 * len(name), versions[name])
    finally:
        server.cleanup()


def test_faiss(run: Callable[..., dict[str, Any]], found: pa.Table) -> None:
    pytest.importorskip("faiss")
    held = run("faiss")

    def search(vector: np.ndarray[Any, Any]) -> list[str]:
        _, [places] = held["index"].search(vector[None], MOST)
        return [held["ids"][place] for place in places]

    check(found, search)


def test_the_feed_of_vespa_is_valid(
    run: Callable[..., dict[str, Any]], found: pa.Table, exported: Path
) -> None:
    run("Vespa")
    lines = (exported / "papers.jsonl").read_text().splitlines()
    rows = found.to_pylist()
    for line, row in zip(map(json.loads, lines), rows, strict=True):
        assert line["put"] == f"id:papers:paper::{row['id']}"
        vector = np.array(line["fields"]["vector"]["values"], np.float32)
        assert vector.tobytes() == np.array(row["vector"], np.float32).tobytes()
        assert len(line["fields"]["windows"]["blocks"]) == len(row["window_ends"])


def test_every_program_is_whole() -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert len(blocks) == 6
    for code in blocks:
        compile(code, "program", "exec")
