"""/rerank in the formats of TEI and of Cohere."""

from typing import Any

import httpx
import numpy as np
import pytest

from docsplit.bundles.format import DEFAULT_BUNDLE
from tests.conftest import Server

MODEL = DEFAULT_BUNDLE.name
QUERY = "How do bees find their way back to the hive?"
TEXTS = [
    "The parliament passed the budget after a long debate.",
    "Honey bees return to their hive by the position of the sun.",
    "Bread rises because yeast makes gas.",
]


def post(server: Server, path: str, status: int = 200, **body: Any) -> Any:
    answer = httpx.post(f"{server.url}{path}", json=body, timeout=90)
    assert answer.status_code == status, answer.text[:500]
    return answer.json()


def test_tei_form(server: Server) -> None:
    ranked = post(server, "/rerank", query=QUERY, texts=TEXTS)
    assert ranked[0]["index"] == 1
    assert {key for one in ranked for key in one} == {"index", "score"}
    raw = post(server, "/rerank", query=QUERY, texts=TEXTS, raw_scores=True, return_text=True)
    assert [one["text"] for one in raw] == [TEXTS[one["index"]] for one in ranked]
    vectors = np.array(post(server, "/embed", inputs=[QUERY, *TEXTS]))
    cosines = np.sort(vectors[1:] @ vectors[0])[::-1]
    assert [one["score"] for one in raw] == pytest.approx(cosines, abs=1e-5)
    assert [one["score"] for one in ranked] == pytest.approx((1 + cosines) / 2, abs=1e-5)


def test_a_long_text_counts_by_its_best_window(server: Server, peps: dict[str, str]) -> None:
    other = " ".join(next(iter(peps.values())).split()[:1500])
    long = f"{other}\n\n{TEXTS[1]}\n\n{other}"
    [first, second] = post(server, "/rerank", query=QUERY, texts=[TEXTS[0], long], raw_scores=True)
    assert first["index"] == 1
    query = np.array(post(server, "/embed", inputs=QUERY)[0])
    whole = post(server, "/embed", inputs=long, windows=True)
    windows = np.array([window["embedding"] for window in whole["windows"][0]])
    assert len(windows) > 3
    assert first["score"] == pytest.approx(float((windows @ query).max()), abs=1e-5)
    # the control: the vector of the whole text does not tell
    assert first["score"] > float(np.dot(whole["embeddings"][0], query)) + 0.05
    cut = post(server, "/rerank", query=QUERY, texts=[long], raw_scores=True, truncate=True)
    assert cut[0]["score"] < first["score"]
    assert second["score"] < first["score"]


@pytest.mark.parametrize("path", ["/rerank", "/v1/rerank", "/v2/rerank"])
def test_cohere_form(server: Server, path: str) -> None:
    documents: list[Any] = [TEXTS[0], {"text": TEXTS[1], "title": "Bees"}, TEXTS[2]]
    answer = post(server, path, query=QUERY, documents=documents, top_n=2, return_documents=True)
    ranked = post(server, "/rerank", query=QUERY, texts=TEXTS)
    assert answer["results"] == [
        {
            "index": one["index"],
            "relevance_score": pytest.approx(one["score"], abs=1e-5),
            "document": {"text": TEXTS[one["index"]]},
        }
        for one in ranked[:2]
    ]
    version = "1" if path == "/v1/rerank" else "2"
    assert answer["meta"]["api_version"] == {"version": version}
    assert answer["meta"]["tokens"]["input_tokens"] > 0
    whole = post(server, path, query=QUERY, documents=TEXTS)
    assert [set(one) for one in whole["results"]] == [{"index", "relevance_score"}] * 3
    assert whole["id"] != answer["id"]


@pytest.mark.parametrize("path", ["/rerank", "/v1/rerank"])
@pytest.mark.parametrize("asked", [{}, {"return_documents": True}], ids=["Open WebUI", "Dify"])
def test_bodies_of_other_programs(server: Server, path: str, asked: dict[str, Any]) -> None:
    """As Open WebUI's external re-ranker and Dify's plugin and SDK for such services send them."""
    body = {"model": MODEL, "query": QUERY, "documents": TEXTS, "top_n": len(TEXTS), **asked}
    results = post(server, path, **body)["results"]
    assert sorted(one["index"] for one in results) == [0, 1, 2]
    scores = [one["relevance_score"] for one in results]
    assert scores == sorted(scores, reverse=True)
    shown = [one.get("document", {}).get("text") for one in results]
    assert shown == [TEXTS[one["index"]] if asked else None for one in results]


@pytest.mark.parametrize(
    ("body", "status", "hint"),
    [
        ({"query": "a"}, 422, "texts"),
        ({"query": "a", "texts": []}, 422, "texts"),
        ({"texts": ["a"]}, 422, "query"),
        ({"query": " ", "texts": ["a"]}, 400, "query is empty"),
        ({"query": "a", "texts": ["a", " "]}, 400, "texts.1 is empty"),
        ({"query": "a", "documents": [" "]}, 400, "documents.0 is empty"),
        ({"query": "a", "documents": [{"title": "b"}]}, 422, "item 0: give a string"),
        ({"query": "a", "texts": ["a"] * 2048}, 413, "2049 inputs"),
        ({"query": "a", "documents": ["a"], "top_n": 0}, 422, "top_n"),
        ({"query": "a", "documents": ["a"], "model": "other"}, 404, "GET /v1/models"),
    ],
)
def test_bad_requests(server: Server, body: dict[str, Any], status: int, hint: str) -> None:
    assert hint in post(server, "/rerank", status, **body)["error"]
    if "documents" in body:
        for path in ("/v1/rerank", "/v2/rerank"):
            answer = post(server, path, status, **body)
            assert set(answer) == {"message"}
            assert hint in answer["message"]
