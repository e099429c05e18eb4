"""Cross-encoders: their bundles, and /rerank with one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import CrossEncoder
from torch import nn

from docsplit.bundles.format import DEFAULT_BUNDLE, RerankerBundle, load, load_reranker
from docsplit.bundles.manifest import BundleError, Manifest, RankParity
from docsplit.engines.choice import detect
from docsplit.windowing.pairs import PairTokenizer
from export.__main__ import main
from export.engines import open_engine, openvino_engine
from export.errors import ExportError
from export.gate import PairGate
from export.graph import write_graph
from export.pipeline import Request, export
from export.progress import unreported
from export.source import is_reranker, open_pair_source
from export.tasks import HeldOut
from export.texts import make_pairs, padded, pair_rows, same_order
from export.thresholds import misses, remaining
from service.server.encoders import open_bundles
from service.settings import Settings
from tests.conftest import NIGHTLY, Server, serving
from tests.export.cross_encoders import CLASSIFIERS, save_cross_encoder, with_segments

QUERY = "how do bees find their hive"
DAY = ("roberta",)


@pytest.fixture(scope="module")
def checkpoint(bert_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cross")
    tokenizer = with_segments(bert_folder, folder / "tokenizer")
    return save_cross_encoder("bert", tokenizer, folder / "tiny", activation_fn=nn.Identity())


@pytest.fixture(scope="module")
def torch_model(checkpoint: Path) -> CrossEncoder:
    return CrossEncoder(str(checkpoint), device="cpu")


@pytest.fixture(scope="module")
def bundle(
    checkpoint: Path, text_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> RerankerBundle:
    dest = tmp_path_factory.mktemp("bundles") / "tiny-reranker"
    flags = ["--licence", "MIT", "--calibration", str(text_file), "--paragraphs", "200"]
    # so strict that fp16 must keep operators in fp32
    flags += ["--threads", "1", "--threshold", "fp16.score_error_mean=.0003"]
    # an untrained model scores many texts almost alike
    flags += ["--threshold", "int8.kendall_tau=.6", "--threshold", "int8.same_first=.5"]
    if not detect().int8:
        # sums of int8 products saturate
        for looser in ("int8.score_error_mean=.1", "int8.score_error_max=.4"):
            flags += ["--threshold", looser]
    assert main([str(checkpoint), str(dest), *flags]) == 0
    return load_reranker(dest)


@pytest.fixture(scope="module")
def tokenizer(bundle: RerankerBundle) -> PairTokenizer:
    made = bundle.manifest
    return PairTokenizer(bundle.path("tokenizer.json"), made.max_tokens, made.segment_offset)


def logits(model: CrossEncoder, pairs: list[tuple[str, str]]) -> np.ndarray:
    found = model.predict(pairs, activation_fn=nn.Identity(), show_progress_bar=False)
    return np.asarray(found)


def pairs_of(sentences: list[str]) -> list[tuple[str, str]]:
    return [(" ".join(text.split()[2:5]) or QUERY, text) for text in sentences if text]


def test_the_manifest_describes_the_bundle(bundle: RerankerBundle, checkpoint: Path) -> None:
    made = bundle.manifest
    source = open_pair_source(str(checkpoint))
    assert (made.kind, made.name, made.max_tokens) == ("reranker", "tiny-reranker", 64)
    assert made.segment_offset == source.encoder.config.vocab_size
    assert made.lineage.source_sha256 == source.weights_digest()
    assert made.lineage.settings["source_activation"] == "Identity"
    fp16, int8 = made.precisions["fp16"], made.precisions["int8"]
    assert fp16.kernels["Attention"] == 2
    assert fp16.kernels["EmbedLayerNormalization"] == 1
    assert (fp16.parity.queries, fp16.parity.pairs) == (20, 200)
    assert fp16.parity.kendall_tau > 0.98
    assert int8.kernels["MatMul int8"] > 0
    assert fp16.repair is not None
    assert fp16.repair.before["score_error_mean"] > 0.0003 >= fp16.parity.score_error_mean
    assert not misses(fp16.parity)
    assert not misses(int8.parity)


def test_each_kind_of_bundle_is_refused_for_the_other(bundle: RerankerBundle) -> None:
    with pytest.raises(BundleError, match="is a re-ranker; serve it with --reranker"):
        load(bundle.root)
    # versions that know no re-rankers name the field
    with pytest.raises(ValueError, match=r"kind\n  Extra inputs"):
        Manifest.model_validate_json((bundle.root / "bundle.json").read_bytes())
    with pytest.raises(BundleError, match="is an encoder, no re-ranker"):
        load_reranker(DEFAULT_BUNDLE, verify=False)
    settings = Settings(reranker=bundle.root)
    revisions = open_bundles(settings).revisions
    assert open_bundles(settings, revisions=revisions).reranker is not None
    with pytest.raises(BundleError, match="changed after the service started"):
        open_bundles(settings, revisions=(revisions[0], "0" * 64))


def test_scores_equal_those_of_torch(
    bundle: RerankerBundle,
    tokenizer: PairTokenizer,
    torch_model: CrossEncoder,
    sentences: list[str],
) -> None:
    pairs = pairs_of(sentences)
    reference = logits(torch_model, pairs)
    ids = pair_rows(tokenizer, pairs)
    graph, tolerance = bundle.graph("fp16"), 0.02
    _, first = open_engine("fp16", graph, threads=1)
    _, second = openvino_engine(graph, threads=1, floating="f32")
    for encode in (first, second):
        for size in (1, 8):
            found = np.concatenate([encode(batch) for batch in padded(ids, size, 0)])[:, 0]
            assert np.abs(found - reference).max() < tolerance
    # the controls: the text asks and the query answers; both texts are of the first segment
    swapped = logits(torch_model, [(text, query) for query, text in pairs])
    assert np.abs(swapped - reference).max() > 10 * tolerance
    plain = PairTokenizer(bundle.path("tokenizer.json"), 64)
    one_segment = np.concatenate([second(b) for b in padded(pair_rows(plain, pairs), 8, 0)])[:, 0]
    assert np.abs(one_segment - reference).max() > 10 * tolerance


def test_inspect_and_verify_report_the_ranks(
    bundle: RerankerBundle,
    checkpoint: Path,
    text_file: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["inspect", str(bundle.root)]) == 0
    said = capsys.readouterr().out
    assert "Kendall's tau" in said
    assert "operators stay in floating point" in said
    flags = ["--calibration", str(text_file), "--paragraphs", "200", "--threads", "1"]
    assert main(["verify", str(bundle.root), "--source", str(checkpoint), *flags]) == 0
    assert "fp16: the bundle says Kendall's tau to the source" in capsys.readouterr().out


@pytest.mark.parametrize("family", CLASSIFIERS if NIGHTLY else DAY)
def test_every_family_traces(
    family: str, bert_folder: Path, roberta_folder: Path, tmp_path: Path, sentences: list[str]
) -> None:
    offset = family in ("camembert", "mpnet", "roberta", "xlm-roberta")
    own = roberta_folder if offset else bert_folder
    folder = save_cross_encoder(family, own, tmp_path / "model")
    source = open_pair_source(str(folder))
    assert source.segment_offset == 0
    fast = source.tokenizer.backend_tokenizer
    joint = PairTokenizer(fast, source.max_tokens)
    gate = PairGate(source, joint, make_pairs(sentences, joint), threads=1, report=unreported)
    write_graph(source, tmp_path / "model.onnx")
    gate.check_trace(tmp_path / "model.onnx")
    # the control: other weights give other scores
    with torch.no_grad():
        for parameter in source.encoder.parameters():
            parameter.add_(0.05)
    with pytest.raises(ExportError, match="computes other scores than the source"):
        gate.check_trace(tmp_path / "model.onnx")


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"activation_fn": "mine.Act"}, "activation mine.Act is unsupported"),
        ({"prompts": {"query": "q: "}}, "has prompts"),
    ],
)
def test_other_cross_encoders_are_refused_by_name(
    checkpoint: Path, tmp_path: Path, fields: dict[str, Any], reason: str
) -> None:
    folder = shutil.copytree(checkpoint, tmp_path / "model")
    settings = folder / "config_sentence_transformers.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | fields))
    assert is_reranker(str(folder))
    with pytest.raises(ExportError, match=reason):
        open_pair_source(str(folder))


def test_what_only_encoders_have_is_refused(
    checkpoint: Path, bert_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not is_reranker(str(bert_folder))
    labels = save_cross_encoder("bert", bert_folder, tmp_path / "labels", labels=3)
    with pytest.raises(ExportError, match="has 3 labels; a re-ranker has one output"):
        open_pair_source(str(labels))
    tasks = HeldOut(retrieval=[tmp_path])
    with pytest.raises(ExportError, match="--retrieval and --probe measure encoders only"):
        export(Request(str(checkpoint), tmp_path / "bundle", held_out=tasks))
    flags = ["--threshold", "int8.cosine_min=.9", "--licence", "MIT"]
    assert main([str(checkpoint), str(tmp_path / "bundle"), *flags]) == 1
    assert "a re-ranker is measured by kendall_tau" in " ".join(capsys.readouterr().err.split())


def test_a_cross_encoder_without_its_classifier_is_refused(
    checkpoint: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(checkpoint, tmp_path / "model")
    file = folder / "model.safetensors"
    weights = {name: t for name, t in load_file(file).items() if "classifier" not in name}
    save_file(weights, file, {"format": "pt"})
    with pytest.raises(ExportError, match=r"2 weights are missing, for instance classifier\.bias"):
        open_pair_source(str(folder))


def test_orders_are_compared_query_by_query() -> None:
    reference = np.arange(20, dtype=float)
    assert same_order(reference, reference) == pytest.approx((1, 1))
    scores = reference.copy()
    scores[[8, 9]] = scores[[9, 8]]
    # one of 45 pairs of the first query's texts is the other way round
    assert same_order(scores, reference) == pytest.approx((1 - 1 / 45, 0.5))
    # the second query's texts are all higher than the first's; that does not matter
    assert same_order(np.tile(reference[:10], 2), reference) == pytest.approx((1, 1))
    assert same_order(np.zeros(20), reference) == (0, 0)
    assert same_order(np.zeros(20), np.zeros(20)) == (1, 1)


def test_a_miss_names_the_figure_and_how_much_error_may_remain() -> None:
    limits = {"kendall_tau": 0.9, "score_error_mean": 0.02}
    fields: dict[str, Any] = {"queries": 20, "pairs": 200, "same_first": 1, "engine": "e"}
    fields |= {"score_error_max": 0.1, "thresholds": limits}
    good = RankParity(kendall_tau=0.95, score_error_mean=0.01, **fields)
    assert (misses(good), remaining(good)) == ([], 1)
    wide = RankParity(kendall_tau=0.95, score_error_mean=0.08, **fields)
    assert misses(wide) == ["score_error_mean 0.0800000 is above 0.02"]
    assert remaining(wide) == 0.25
    low = RankParity(kendall_tau=0.8, score_error_mean=0.01, **fields)
    assert misses(low) == ["kendall_tau 0.8000000 is below 0.9"]
    assert remaining(low) == 0.5


@pytest.fixture(scope="module")
def server(bundle: RerankerBundle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    log = tmp_path_factory.mktemp("served") / "log"
    flags = ["--reranker", str(bundle.root), "--precision", "f32", "--model-aliases", "rerank-v3.5"]
    with serving(log, *flags) as running:
        yield running


def post(server: Server, path: str, status: int = 200, **body: Any) -> httpx.Response:
    answer = httpx.post(f"{server.url}{path}", json=body, timeout=90)
    assert answer.status_code == status, answer.text[:500]
    return answer


def test_rerank_gives_the_scores_of_torch(
    server: Server, torch_model: CrossEncoder, sentences: list[str]
) -> None:
    texts = [" ".join(text.split()[:5]) for text in sentences if text]
    reference = logits(torch_model, [(QUERY, text) for text in texts])
    order = np.argsort(-reference, kind="stable").tolist()
    raw = post(server, "/rerank", query=QUERY, texts=texts, raw_scores=True).json()
    assert {one["index"]: one["score"] for one in raw} == pytest.approx(
        dict(enumerate(reference.tolist())), abs=0.02
    )
    ranked = post(server, "/rerank", query=QUERY, texts=texts).json()
    assert [one["index"] for one in ranked] == [one["index"] for one in raw]
    scores = 1 / (1 + np.exp(-np.array([one["score"] for one in raw])))
    assert [one["score"] for one in ranked] == pytest.approx(scores.tolist(), abs=1e-6)
    # the control: the encoder's cosines give another order
    vectors = np.array(httpx.post(f"{server.url}/embed", json={"inputs": [QUERY, *texts]}).json())
    assert np.argsort(-(vectors[1:] @ vectors[0]), kind="stable").tolist() != order
    for path in ("/v1/rerank", "/v2/rerank", "/rerank"):
        answer = post(server, path, query=QUERY, documents=texts, top_n=3, model="tiny-reranker")
        assert answer.json()["results"] == [
            {"index": one["index"], "relevance_score": pytest.approx(one["score"], abs=1e-6)}
            for one in ranked[:3]
        ]
    post(server, "/v2/rerank", query=QUERY, documents=["a"], model="rerank-v3.5")


def test_a_long_text_counts_by_its_best_window(
    server: Server, bundle: RerankerBundle, tokenizer: PairTokenizer, pep_texts: list[str]
) -> None:
    long = " ".join(pep_texts[1].split()[:300])
    query = tokenizer.documents.encode(QUERY).ids
    windows = tokenizer.behind(query).split(long, tokenizer.documents.encode(long))
    assert len(windows) > 5
    assert "".join(long[window.start : window.end] for window in windows) == long
    _, encode = openvino_engine(bundle.graph("fp16"), threads=1, floating="f32")
    found = [float(encode(padded([window.ids], 1, 0)[0])[0, 0]) for window in windows]
    answer = post(server, "/rerank", query=QUERY, texts=[long], raw_scores=True)
    assert answer.json()[0]["score"] == pytest.approx(max(found), abs=1e-3)
    tokens = sum(len(window.ids) for window in windows)
    assert answer.headers["x-compute-tokens"] == str(tokens)
    assert answer.headers["x-truncated"] == "false"
    cut = post(server, "/rerank", query=QUERY, texts=[long], raw_scores=True, truncate=True)
    assert cut.headers["x-truncated"] == "true"
    # the control: the first window has another score
    assert cut.json()[0]["score"] < answer.json()[0]["score"] - 1e-3


def test_a_long_query_is_refused_or_cut_on_request(server: Server) -> None:
    body: dict[str, Any] = {"query": f"{QUERY} " * 20, "texts": ["bees fly"]}
    refused = post(server, "/rerank", 413, **body).json()["error"]
    assert refused.startswith("query has more than 30 tokens")
    post(server, "/v1/rerank", 413, query=body["query"], documents=["bees"])
    cut = post(server, "/rerank", **body, truncate=True)
    assert cut.headers["x-truncated"] == "true"
    assert int(cut.headers["x-compute-tokens"]) <= 64


@pytest.mark.parametrize(
    ("body", "status", "hint"),
    [
        ({"query": " ", "texts": ["a"]}, 400, "query is empty"),
        ({"query": "a", "texts": ["a", " "]}, 400, "texts.1 is empty"),
        ({"query": "a", "texts": ["a"] * 2048}, 413, "2049 inputs"),
        (
            {"query": "a", "documents": ["a"], "model": DEFAULT_BUNDLE.name},
            404,
            "texts are ranked by: tiny-reranker, rerank-v3.5",
        ),
    ],
)
def test_bad_requests(server: Server, body: dict[str, Any], status: int, hint: str) -> None:
    assert hint in post(server, "/rerank", status, **body).json()["error"]


def test_the_service_reports_the_reranker(server: Server, bundle: RerankerBundle) -> None:
    info = httpx.get(f"{server.url}/info").json()["reranker"]
    assert (info["name"], info["revision"]) == ("tiny-reranker", bundle.manifest.revision)
    assert (info["window_tokens"], info["query_tokens"], info["precision"]) == (64, 30, "f32")
    before = [server.metric(f"docsplit_{name}") for name in METRICS]
    post(server, "/rerank", query=QUERY, texts=["bees fly", "a hive"])
    after = [server.metric(f"docsplit_{name}") for name in METRICS]
    texts, windows, tokens, embedded = np.subtract(after, before)
    assert (texts, windows, embedded) == (2, 2, 0)
    assert tokens > 0


METRICS = (
    "reranker_texts_total",
    "reranker_windows_total",
    "reranker_tokens_total",
    "documents_total",
)
