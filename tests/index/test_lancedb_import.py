"""The service changes how LanceDB is imported: without log lines, and without a client of REST."""

import os
import subprocess
import sys

import pytest

from tests.conftest import ONLY_NIGHTLY, ROOT

# an index over equal vectors: the library warns about empty clusters
PROGRAM = """
import asyncio, sys
import numpy as np, pyarrow as pa
import service.index.storage.database
import lancedb, lancedb.background_loop, uvloop
from lancedb.index import IvfFlat

async def main():
    database = await lancedb.connect_async(sys.argv[1])
    zeros = pa.array(np.zeros(600 * 8, np.float32))
    rows = pa.table({"vector": pa.FixedSizeListArray.from_arrays(zeros, 8)})
    table = await database.create_table("equal", rows)
    await table.create_index("vector", config=IvfFlat(num_partitions=4))

    await (await asyncio.create_subprocess_exec(sys.executable, "-c", "")).wait()

uvloop.run(main())
client = sys.modules["lance_namespace_urllib3_client"]
print("lance_namespace_urllib3_client.api" in sys.modules, client.TableApi.__name__)
"""


@pytest.mark.parametrize("level", [None, pytest.param("warn", marks=ONLY_NIGHTLY)])
def test_the_library_writes_no_lines_unless_asked_and_loads_its_client_late(
    level: str | None, tmp_path: os.PathLike[str]
) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "LANCEDB_LOG"}
    if level is not None:
        environment["LANCEDB_LOG"] = level
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert ("KMeans" in done.stderr) == (level == "warn")
    assert done.stdout.split() == ["False", "TableApi"]
    # of the subprocess
    assert "fork support" not in done.stderr


WITHOUT_THE_FILTER = """
import asyncio, sys
import lancedb.background_loop, uvloop

async def run():
    await (await asyncio.create_subprocess_exec(sys.executable, "-c", "")).wait()

uvloop.run(run())
"""


@ONLY_NIGHTLY
def test_the_library_itself_warns_about_a_subprocess() -> None:
    """The control of the test before."""
    command = [sys.executable, "-c", WITHOUT_THE_FILTER]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert "fork support" in done.stderr


def test_a_service_that_only_embeds_does_not_load_it() -> None:
    code = (
        "import sys, service.server.serving;"
        "print(sorted({'lancedb', 'pandas', 'sklearn'} & {*sys.modules}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
