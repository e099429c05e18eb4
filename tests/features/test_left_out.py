"""The core alone, and the answers of routes whose feature is not installed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.features import KNOWN, MissingError, feature, installed
from tests.conftest import ROOT, Server, serving

# a request to each path of a feature, and the extra that the answer names
REQUESTS = {
    "files": ("docsplit[files]", [("POST", "/read"), ("POST", "/indexes/x/files")]),
    "maps": ("docsplit[map]", [("GET", "/indexes/x/map"), ("GET", "/indexes/x/topics")]),
    "page": ("features/page", [("GET", "/"), ("GET", "/docs")]),
    "mcp": ("docsplit[mcp]", [("POST", "/mcp")]),
}
# what no process of the core imports: the features and what only they need
ALONE = ["features", *(needed for known in KNOWN.values() for needed in known.needs)]


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory, light: tuple[str, ...]) -> Iterator[Server]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WITHOUT", " ".join(ALONE))
        log = tmp_path_factory.mktemp("core") / "log"
        with serving(log, *light, fresh=True, module="tests.features.without") as running:
            yield running


def call(server: Server, method: str, path: str, body: Any = None, status: int = 200) -> Any:
    answer = httpx.request(method, server.url + path, json=body, timeout=60)
    assert answer.status_code == status, answer.text
    return answer.json()


def test_the_core_alone_embeds_searches_and_classifies(core: Server) -> None:
    texts = [f"{what} number {n}" for n in range(4) for what in ("a red apple", "a fast car")]
    vectors = call(core, "POST", "/embed", {"inputs": texts})
    assert len(vectors) == len(texts)
    call(core, "PUT", "/indexes/things", {}, status=201)
    documents = [{"id": str(n), "text": text} for n, text in enumerate(texts)]
    call(core, "POST", "/indexes/things/documents", {"documents": documents})
    hits = call(core, "POST", "/similar", {"index": "things", "text": texts[0]})
    assert hits[0]["id"] == "0"
    body = {"inputs": texts, "labels": [text.split()[2] for text in texts]}
    assert set(call(core, "PUT", "/classifiers/kinds", body)["outputs"]) == {"apple", "car"}
    said = call(core, "POST", "/classify", {"inputs": texts[1], "classifier": "kinds"})
    assert {one["label"] for one in said[0]} == {"apple", "car"}


def test_it_names_the_missing_feature_of_an_area(core: Server) -> None:
    area = {"map": "x", "corners": [[0, 0], [0, 1], [1, 1]]}
    body = {"index": "none", "text": "a", "area": area}
    call(core, "PUT", "/indexes/none", {}, status=201)
    assert "docsplit[map]" in call(core, "POST", "/similar", body, status=404)["error"]


@pytest.mark.parametrize("name", REQUESTS)
def test_routes_of_a_missing_feature_name_it(core: Server, name: str) -> None:
    remedy, requests = REQUESTS[name]
    for method, path in requests:
        answer = httpx.request(method, core.url + path, timeout=30)
        assert answer.status_code == 404
        assert repr(name) in answer.text
        assert remedy in answer.text


def test_every_feature_with_routes_is_asked() -> None:
    assert set(REQUESTS) == {name for name, known in KNOWN.items() if known.paths}
    assert all(len(REQUESTS[name][1]) == len(KNOWN[name].paths) for name in REQUESTS)


@pytest.mark.parametrize("name", KNOWN)
def test_a_feature_is_missing_without_its_folder_or_a_package(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (f"features.{name}.feature", *KNOWN[name].needs[-1:]):
        feature.cache_clear()
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, module, None)
            with pytest.raises(MissingError, match=f"{name!r} is not installed"):
                feature(name)
            assert set(installed()) == set(KNOWN) - {name}
    feature.cache_clear()
    assert feature(name).name == name


def test_an_error_inside_a_feature_is_not_taken_for_its_absence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    feature.cache_clear()
    monkeypatch.delitem(sys.modules, "features.maps.feature", raising=False)
    monkeypatch.setitem(sys.modules, "features.maps.background", None)
    with pytest.raises(ModuleNotFoundError, match="background"):
        feature("maps")
    feature.cache_clear()


def test_a_command_without_ray_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "texts.jsonl"
    file.write_text('{"id": "a", "text": "a"}\n')
    code = (
        "import sys; sys.modules['ray'] = None; from service.bulk.__main__ import main; "
        f"sys.exit(main([{str(file)!r}, '--index', 'x', '--ray', 'local']))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert "docsplit[ray]" in done.stderr
