"""litellm against a running service, if it is installed: pip install litellm."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from typing import Any

import httpx
import pytest

from docsplit.bundles.format import DEFAULT_BUNDLE
from tests.conftest import Server

pytestmark = pytest.mark.skipif(find_spec("litellm") is None, reason="litellm is not installed")

MODEL = DEFAULT_BUNDLE.name
TEXTS = ["The cat sat on the mat.", "Taxes are due in May."]
# in a process of its own, because it changes settings of other libraries
SCRIPT = """
import json, sys
import litellm
call, options = json.loads(sys.argv[1])
print("answer", json.dumps(getattr(litellm, call)(**options).model_dump()))
"""


def asked(call: str, **options: Any) -> Any:
    wanted = json.dumps([call, {**options, "api_key": "none"}])
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, wanted], capture_output=True, text=True, check=True
    )
    [line] = [one for one in done.stdout.splitlines() if one.startswith("answer ")]
    return json.loads(line.removeprefix("answer "))


@pytest.mark.parametrize(
    ("provider", "path", "more"),
    [
        ("openai", "/v1", {}),
        ("hosted_vllm", "/v1", {}),
        ("jina_ai", "/v1", {}),
        ("cohere", "/v2/embed", {"input_type": "search_document"}),
    ],
)
def test_litellm_gets_vectors(
    server: Server, provider: str, path: str, more: dict[str, Any]
) -> None:
    model, base = f"{provider}/{MODEL}", f"{server.url}{path}"
    answer = asked("embedding", model=model, input=TEXTS, api_base=base, **more)
    found = [one["embedding"] for one in answer["data"]]
    plain = httpx.post(f"{server.url}/embed", json={"inputs": TEXTS}).json()
    assert found == [pytest.approx(row, abs=1e-6) for row in plain]


@pytest.mark.parametrize("provider", ["cohere", "jina_ai", "hosted_vllm", "huggingface"])
def test_litellm_ranks(server: Server, provider: str) -> None:
    options = {"model": f"{provider}/{MODEL}", "query": "a kitten", "documents": TEXTS}
    results = asked("rerank", **options, top_n=2, api_base=server.url)["results"]
    assert [one["index"] for one in results] == [0, 1]
