"""The way in which the CUDA engine runs a graph, tested with the CPU's kernels."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from docsplit.bundles.format import DEFAULT_BUNDLE, load
from docsplit.engines.build import buckets
from docsplit.engines.interface import EngineError
from docsplit.engines.onnx import Buckets, OnnxCudaEngine, open_cuda, open_session
from tests.service.test_cuda import why_not

BUNDLE = load(DEFAULT_BUNDLE, verify=False)


@pytest.fixture(scope="module")
def session() -> Any:
    return open_session(BUNDLE.graph("fp16"), 1, ["CPUExecutionProvider"])


def batch(rows: int, tokens: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Random ids; rows have falling lengths, the first is the longest."""
    ids = np.random.default_rng(seed).integers(1_000, 20_000, size=(rows, tokens))
    mask = (np.arange(tokens) < np.linspace(tokens, 2, rows).round()[:, None]).astype(np.int64)
    return ids * mask, mask


def unbound(session: Any, ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
    feed = {"input_ids": ids, "attention_mask": mask}
    vectors: np.ndarray = session.run(["sentence_embedding"], feed)[0]
    return vectors


@pytest.mark.parametrize("shape", [(1, 3), (5, 21), (9, 40), (17, 33)])
def test_binding_and_rounding_up_do_not_change_vectors(
    session: Any, shape: tuple[int, int]
) -> None:
    engine = OnnxCudaEngine(session, buckets(BUNDLE))
    ids, mask = batch(*shape)
    vectors = engine.run(ids, mask)
    assert vectors.shape == (shape[0], 384)
    assert vectors.dtype == np.float32
    assert np.abs(vectors - unbound(session, ids, mask)).max() < 1e-3


def test_added_tokens_would_count_without_the_mask(
    session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids, mask = batch(5, 21)
    plain = unbound(session, ids, mask)
    fill = Buckets.fill

    def unmasked(self: Buckets, ids: np.ndarray, mask: np.ndarray) -> tuple[Any, Any]:
        filled, masked = fill(self, ids, mask)
        return filled, np.ones_like(masked)

    monkeypatch.setattr(Buckets, "fill", unmasked)
    vectors = OnnxCudaEngine(session, buckets(BUNDLE)).run(ids, mask)
    assert np.abs(vectors - plain).max() > 0.01


def test_streams_do_not_see_each_others_batches(session: Any) -> None:
    engine = OnnxCudaEngine(session, buckets(BUNDLE))
    given = [batch(1 + seed % 4, 5 + seed, seed) for seed in range(12)]
    with ThreadPoolExecutor(engine.streams) as pool:
        found = list(pool.map(lambda one: engine.run(*one), given))
    for one, vectors in zip(given, found, strict=True):
        assert np.abs(vectors - unbound(session, *one)).max() < 1e-3
    assert np.abs(found[0] - unbound(session, *given[4])).max() > 0.01


def test_results_outlive_the_next_batch(session: Any) -> None:
    engine = OnnxCudaEngine(session, buckets(BUNDLE))
    first = engine.run(*batch(4, 32))
    kept = first.copy()
    second = engine.run(*batch(4, 32, seed=1))
    assert np.array_equal(first, kept)
    assert np.abs(second - kept).max() > 0.01


@pytest.mark.skipif(why_not() is None, reason="CUDA is here")
def test_without_cuda_the_engine_does_not_start_on_the_cpu() -> None:
    with pytest.raises(EngineError, match="CUDAExecutionProvider"):
        open_cuda(BUNDLE.graph("fp16"))
