"""Several bundles behind one address."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import openai
import orjson
import pytest

from docsplit.bundles import format as bundle
from docsplit.bundles.format import DEFAULT_BUNDLE
from docsplit.bundles.manifest import BundleError, Manifest
from docsplit.heads.examples import Examples
from service.errors import NotFoundError
from service.index.indexes import Indexes, Model, connect
from service.server.encoder import Running
from service.server.encoders import ModelTooLargeError, ModelUnusableError, open_bundles
from service.server.lifecycle import Service
from service.settings import Settings
from tests.conftest import Server, serving, wait_until
from tests.index.conftest import call, upsert
from tests.light_bundle import seal_light

TEXT = "A library of old letters."
# cosine of the text's vectors by one bundle; those by two bundles are less alike
NEAR = 0.9999
FIRST = bundle.load(DEFAULT_BUNDLE, verify=False).manifest


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a bundle whose vectors have as many dimensions as those of the default one."""
    folder = tmp_path_factory.mktemp("other") / "bundle"
    seal_light(folder, FIRST.dimensions)
    return folder


@pytest.fixture(scope="module")
def second(other: Path) -> Manifest:
    return bundle.load(other, verify=False).manifest


@pytest.fixture(scope="module")
def both(other: Path) -> tuple[str, str]:
    return str(DEFAULT_BUNDLE), f"other={other}"


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory, both: tuple[str, str]) -> Iterator[Server]:
    """The default bundle, and another one under the name ``other``.

    Its store has the index ``former``, which a bundle embedded that is not served.
    """
    folder = tmp_path_factory.mktemp("two")

    async def leave() -> None:
        databases = [await connect(f"{folder}/index/{part}") for part in ("indexes", "leases")]
        gone = Indexes(databases[0], databases[1], Model("gone", "f" * 64, 384))
        await gone.create("former", {})

    asyncio.run(leave())
    with serving(folder / "log", "--bundle", both[0], "--bundle", both[1]) as running:
        yield running


def of_model(server: Server, name: str, model: str) -> float:
    """The value of a metric of one bundle."""
    for line in httpx.get(f"{server.url}/metrics").text.splitlines():
        if line.startswith(f'{name}{{model="{model}"}}'):
            return float(line.split()[-1])
    raise AssertionError(f"no metric {name} of {model}")


def embedded(server: Server, **body: Any) -> np.ndarray:
    return np.array(call(server, "POST", "/embed", {"inputs": TEXT, **body})[0])


def test_a_bundle_is_loaded_when_a_request_names_it(two: Server, second: Manifest) -> None:
    states = [(m["name"], m["state"]) for m in call(two, "GET", "/info")["models"]]
    assert states == [(FIRST.name, "loaded"), ("other", "unloaded")]
    assert of_model(two, "docsplit_model_loaded", "other") == 0
    default = embedded(two)
    np.testing.assert_array_equal(embedded(two, model=FIRST.name), default)
    different = embedded(two, model="other")
    assert float(default @ different) < NEAR
    # the caches of the two have the same keys
    np.testing.assert_array_equal(embedded(two, inputs=[TEXT], model="other"), different)
    assert call(two, "GET", "/info")["models"][1]["state"] == "loaded"
    assert of_model(two, "docsplit_model_loaded", "other") == 1
    assert of_model(two, "docsplit_model_documents_total", "other") == 2
    assert of_model(two, "docsplit_model_tokens_total", "other") > 0
    assert of_model(two, "docsplit_model_memory_bytes", "other") > second.files["model.onnx"].bytes


def test_each_dialect_chooses_by_name(two: Server, second: Manifest) -> None:
    expected = embedded(two, model="other")
    client = openai.OpenAI(base_url=f"{two.url}/v1", api_key="none")
    assert [model.id for model in client.models.list()] == [FIRST.name, "other"]
    answer = client.embeddings.create(model="other", input=TEXT)
    assert answer.model == "other"
    np.testing.assert_allclose(answer.data[0].embedding, expected, atol=1e-6)
    cohere = {"model": "other", "texts": [TEXT], "input_type": "clustering"}
    found = call(two, "POST", "/v2/embed", cohere)["embeddings"]["float"][0]
    np.testing.assert_allclose(found, expected, atol=1e-6)
    detailed = call(two, "POST", "/embed", {"inputs": TEXT, "model": "other", "windows": True})
    assert (detailed["model"], detailed["revision"]) == ("other", second.revision)
    lines: dict[str, Any] = {
        "content": f'"{TEXT}"\n',
        "headers": {"content-type": "application/x-ndjson"},
    }
    answer = httpx.post(f"{two.url}/embed?model=other", timeout=60, **lines)
    np.testing.assert_allclose(
        orjson.loads(answer.text.splitlines()[0])["embedding"], expected, atol=1e-6
    )
    assert httpx.post(f"{two.url}/embed?model=missing", timeout=60, **lines).status_code == 404
    pair = {"inputs": {"source_sentence": TEXT, "sentences": ["Old letters."]}}
    texts = {"query": TEXT, "texts": ["Old letters."], "raw_scores": True}
    bodies: list[tuple[str, dict[str, Any]]] = [("/similarity", pair), ("/rerank", texts)]
    for path, body in bodies:
        values = [call(two, "POST", path, body | {"model": m}) for m in (FIRST.name, "other")]
        assert values[0] != values[1]
    document = {"query": TEXT, "documents": ["Old letters."], "model": "other"}
    assert call(two, "POST", "/v2/rerank", document)["results"]
    for path, body in [*bodies, ("/embed", {"inputs": TEXT}), ("/v1/embeddings", {"input": TEXT})]:
        refused = call(two, "POST", path, body | {"model": "missing"}, status=404)
        assert f"{FIRST.name}, other" in str(refused)


def test_one_bundle_ignores_the_name_on_native_routes(server: Server) -> None:
    np.testing.assert_array_equal(embedded(server, model="missing"), embedded(server))


def test_an_index_stays_with_its_bundle(two: Server, second: Manifest) -> None:
    call(two, "PUT", "/indexes/one", {}, status=201)
    made = call(two, "PUT", "/indexes/two", {"model": "other"}, status=201)
    assert (made["model"], made["served_by"], made["revision"]) == (
        "other",
        "other",
        second.revision,
    )
    call(two, "PUT", "/indexes/two", {})
    call(two, "PUT", "/indexes/two", {"model": FIRST.name}, status=409)
    call(two, "PUT", "/indexes/three", {"model": "missing"}, status=404)
    for name in ("one", "two"):
        upsert(two, name, {"id": "a", "text": TEXT}, {"id": "b", "text": "Rain over the sea."})
        hits = call(two, "POST", "/similar", {"index": name, "text": TEXT})
        assert hits[0]["id"] == "a"
        assert hits[0]["cosine"] > NEAR
        found = call(two, "POST", "/passages", {"index": name, "text": TEXT})
        assert found[0]["id"] == "a"
        pair = {"text": TEXT, "other": "a"}
        assert call(two, "POST", f"/indexes/{name}/compare", pair)["cosine"] > NEAR
        assert [g["current"] for g in call(two, "GET", f"/indexes/{name}")["generations"]] == [True]


def test_an_index_of_a_bundle_that_is_not_served_answers_409(two: Server) -> None:
    said = call(two, "GET", "/indexes/former")
    assert (said["model"], said["served_by"], said["current"], said["progress"]) == (
        "gone",
        None,
        False,
        None,
    )
    documents = {"documents": [{"id": "a", "text": TEXT}]}
    for method, path, body in (
        ("POST", "/similar", {"index": "former", "text": TEXT}),
        ("POST", "/indexes/former/documents", documents),
        ("GET", "/indexes/former/documents", None),
        ("PUT", "/indexes/former", {}),
        ("DELETE", f"/indexes/former/generations/{'f' * 64}", None),
    ):
        refused = call(two, method, path, body, status=409)["error"]
        assert "'gone'" in refused
        assert "--bundle gone=PATH" in refused
    assert len(call(two, "GET", "/indexes/former")["generations"]) == 1


def test_an_operator_learns_of_an_index_that_is_not_served(two: Server) -> None:
    call(two, "PUT", "/indexes/served", {}, status=201)

    def reasons() -> Any:
        health = call(two, "GET", "/readyz")
        assert health["degraded"] == bool(health["reasons"])
        return health["reasons"]

    wait_until(lambda: reasons() == ["index"], 20)
    lines = map(orjson.loads, two.log.read_text().splitlines())
    [warned] = [line for line in lines if line["event"] == "index_not_served"]
    assert (warned["index"], warned["level"]) == ("former", "warning")
    assert "'gone'" in warned["reason"]
    assert "--bundle gone=PATH" in warned["reason"]
    call(two, "DELETE", "/indexes/former", status=204)
    wait_until(lambda: reasons() == [], 20)


def test_a_classifier_reads_the_vectors_of_its_bundle(two: Server, second: Manifest) -> None:
    inputs = ["rain", "snow and rain", "wind", "bread", "bread and butter", "cheese"]
    body = {"inputs": inputs, "labels": ["weather"] * 3 + ["food"] * 3}
    wish = body | {"model": "other", "background": True}
    assert call(two, "PUT", "/classifiers/second", wish, status=202)["training"]
    path = "/classifiers/second"
    wait_until(lambda: "training" not in call(two, "GET", path), 60)
    made = call(two, "GET", path)
    assert (made["revision"], made["current"]) == (second.revision, True)
    before = of_model(two, "docsplit_model_documents_total", "other")
    call(two, "POST", "/classify", {"inputs": "hail", "classifier": "second"})
    assert of_model(two, "docsplit_model_documents_total", "other") == before + 1
    call(two, "PUT", "/indexes/mine", {}, status=201)
    upsert(two, "mine", *({"id": text, "text": text} for text in inputs))
    refused = call(two, "POST", "/classifiers/second/suggest", {"index": "mine"}, status=409)
    assert "another bundle" in refused["error"]
    refused = call(two, "GET", "/indexes/mine/map?classifier=second", status=409)
    assert "train one on documents of this index" in refused["error"]
    call(two, "PUT", "/classifiers/x", body | {"model": "other", "unlabelled": "mine"}, status=422)


def test_examples_keep_the_name_of_their_bundle() -> None:
    plain = Examples(["a", "b"], [["x"], ["y"]])
    named = Examples(["a", "b"], [["x"], ["y"]], model="other")
    assert Examples.from_bytes(named.to_bytes()) == named
    assert Examples.from_bytes(plain.to_bytes()) == plain
    assert len(named.to_bytes()) > len(plain.to_bytes())


def opened(*bundles: str, **settings: Any) -> Service:
    given = Settings(bundle=list(bundles), calibrate=0, index_path="unused", **settings)
    return Service(given, open_bundles(given, revisions=None))


@pytest.mark.parametrize(
    ("bundles", "settings", "said"),
    [
        (("{0}", "{0}"), {}, "--bundle NAME=PATH"),
        (("{0}", "again={0}"), {}, "is the same bundle"),
        (("{0}", "{1}"), {"model_aliases": ["other"]}, "model_aliases"),
        (("{0}", "{1}"), {"max_bundle_bytes": 1000}, "max_bundle_bytes"),
    ],
)
def test_bundles_that_cannot_be_served_together_end_the_start(
    both: tuple[str, str], bundles: tuple[str, ...], settings: dict[str, Any], said: str
) -> None:
    with pytest.raises((BundleError, ValueError), match=said):
        opened(*(one.format(*both) for one in bundles), **settings)


def test_names_and_aliases(both: tuple[str, str], second: Manifest) -> None:
    encoders = opened(*both, model_aliases=["small"]).encoders
    assert encoders.names == [FIRST.name, "other", "small"]
    assert encoders.named("small") is encoders.named(None) is encoders.default
    assert encoders.named("other").revision == second.revision
    with pytest.raises(NotFoundError):
        encoders.named("missing")


def test_a_bundle_beyond_the_memory_is_refused_before_it_is_loaded(both: tuple[str, str]) -> None:
    one = opened(both[0]).encoders.default.memory_bytes
    encoders = opened(*both, max_bundle_bytes=one + 1).encoders
    with pytest.raises(ModelTooLargeError, match="max_bundle_bytes"):
        asyncio.run(encoders.running(encoders.named("other")))


async def test_an_engine_that_does_not_start_is_tried_once(
    monkeypatch: pytest.MonkeyPatch, both: tuple[str, str]
) -> None:
    encoders = opened(*both).encoders
    chosen = encoders.named("other")
    tries: list[str] = []

    def build() -> Running:
        tries.append("other")
        raise RuntimeError("no")

    monkeypatch.setattr(chosen, "_build", build)

    asked = [encoders.running(chosen) for _ in range(3)]
    outcomes = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [ModelUnusableError] * 3
    with pytest.raises(ModelUnusableError):
        await encoders.running(chosen)
    assert tries == ["other"]
    assert chosen.failed
