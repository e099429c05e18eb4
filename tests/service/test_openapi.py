"""The service, tested against its own OpenAPI document."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.conftest import NIGHTLY, ROOT, Server, serving

# A wrong value may be too long for the request line, which gives 431.
# All checks run, except for the first: a schema cannot express that white space is no text, or
# which models and prompts exist.
# Filters nest, so 7,700 of this phase's 8,600 requests would test wrong filters at every depth. The
# other phases send wrong filters at random.
# A document may have the id "get". So the path of the second entry accepts more methods than its
# own POST, and Allow names them. An id may end in "/links" or "/windows", so the paths of the
# third entry also accept PATCH. Browsers get a page by GET /, which the document leaves out.
_CONFIGURATION = """
hooks = "hooks.py"

[checks.positive_data_acceptance]
enabled = false

[checks.negative_data_rejection]
expected-statuses = [400, 401, 403, 404, 405, 406, 409, 415, 422, 428, 429, 431, "5xx"]

[[operations]]
include-path = [
  "/similar", "/passages", "/classifiers/{name}/suggest", "/indexes/{name}/documents/delete"
]
phases.coverage.enabled = false

[[operations]]
include-path = ["/indexes/{name}/documents/get"]
checks.allow_header_conformance.enabled = false

[[operations]]
include-path = [
  "/", "/indexes/{name}/documents/{document_id}/links",
  "/indexes/{name}/documents/{document_id}/windows"
]
checks.unsupported_method.enabled = false
"""

# By day the phase of systematic bodies leaves these routes out: /classify, /rerank, /embed and
# /similarity, which have the same models, get its bodies. And bodies at random go only to routes
# that this phase leaves out. Each route gets two methods that it lacks, instead of all.
_BY_DAY = """
[phases.coverage]
unexpected-methods = ["PUT", "TRACE"]

[[operations]]
include-path = ["/", "/predict", "/v1/rerank", "/v2/rerank"]
phases.coverage.enabled = false

[[operations]]
exclude-path = [
  "/", "/predict", "/v1/rerank", "/v2/rerank",
  "/similar", "/passages", "/classifiers/{name}/suggest", "/indexes/{name}/documents/delete"
]
phases.fuzzing.enabled = false
"""

# schemathesis knows no way to write this type
_HOOKS = """
import schemathesis

@schemathesis.serializer("application/vnd.apache.parquet")
def table(_, value):
    return value if isinstance(value, bytes) else str(value).encode()
"""


@pytest.fixture(scope="module")
def server(light: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("openapi") / "log", *light) as running:
        yield running


# two thousand requests; in the nightly run, for up to half an hour
@pytest.mark.timeout(3600 if NIGHTLY else 900)
def test_every_route_conforms_to_its_schema(server: Server, tmp_path: Path) -> None:
    configuration = _CONFIGURATION if NIGHTLY else _CONFIGURATION + _BY_DAY
    (tmp_path / "schemathesis.toml").write_text(configuration)
    (tmp_path / "hooks.py").write_text(_HOOKS)
    command = [
        str(Path(sys.executable).with_name("schemathesis")),
        "run",
        f"{server.url}/openapi.json",
        f"--max-examples={1000 if NIGHTLY else 3}",
        *([] if NIGHTLY else ["--seed=1"]),
        "--generation-database=none",
    ]
    # hypothesis keeps its tables of characters there; requests reads all variables each time
    environment = {"HYPOTHESIS_STORAGE_DIRECTORY": str(ROOT / ".hypothesis")}
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, env=environment
    )
    # warnings may be long, and follow the failures
    assert done.returncode == 0, (
        done.stdout.partition(" FAILURES ")[2][:6000] or done.stdout[-3000:]
    )
    assert "unresolvable" not in done.stdout.lower()


def test_the_document_names_every_route_of_the_interface(server: Server) -> None:
    paths = httpx.get(f"{server.url}/openapi.json").json()["paths"]
    assert set(paths) == {
        "/",
        "/embed",
        "/similarity",
        "/similar",
        "/passages",
        "/classify",
        "/predict",
        "/classifiers",
        "/classifiers/{name}",
        "/classifiers/{name}/retrain",
        "/classifiers/{name}/network",
        "/classifiers/{name}/suggest",
        "/classifiers/{name}/labels",
        "/read",
        "/indexes",
        "/indexes/{name}",
        "/indexes/{name}/duplicates",
        "/aliases",
        "/aliases/{alias}",
        "/indexes/{name}/citation",
        "/indexes/{name}/citation/network",
        "/indexes/{name}/generations/{revision}",
        "/indexes/{name}/documents",
        "/indexes/{name}/documents/{document_id}",
        "/indexes/{name}/documents/get",
        "/indexes/{name}/documents/delete",
        "/indexes/{name}/documents/{document_id}/links",
        "/indexes/{name}/documents/{document_id}/windows",
        "/indexes/{name}/compare",
        "/indexes/{name}/links",
        "/indexes/{name}/links/find",
        "/indexes/{name}/links/missing",
        "/indexes/{name}/files",
        "/indexes/{name}/map",
        "/indexes/{name}/topics",
        "/jobs",
        "/jobs/{job_id}",
        "/rerank",
        "/v1/rerank",
        "/v2/rerank",
        "/v2/embed",
        "/v1/embeddings",
        "/v1/models",
        "/v1/models/{model}",
        "/health",
        "/livez",
        "/readyz",
        "/info",
        "/keys",
        "/metrics",
    }
