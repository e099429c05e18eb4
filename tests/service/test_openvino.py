"""The precision in which OpenVINO computes."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import openvino
import pytest
from numpy.typing import NDArray
from openvino import opset13

from docsplit.bundles import format as bundle
from docsplit.bundles.format import DEFAULT_BUNDLE
from docsplit.engines.choice import Arithmetic, detect
from docsplit.engines.openvino_cpu import (
    OpenVinoEngine,
    behind_pooling,
    floating,
    openvino_core,
    take_token_vectors,
)

WITHOUT = ["FP32", "INT8"]
WITH = [*WITHOUT, "BF16"]


@pytest.mark.parametrize(
    ("arithmetic", "capabilities", "expected"),
    [
        ("int8", WITH, "bf16"),
        ("bf16", WITH, "bf16"),
        ("f32", WITH, "f32"),
        ("int8", WITHOUT, "f32"),
        ("f32", WITHOUT, "f32"),
    ],
)
def test_operators_that_are_not_int8_use_bf16_if_available(
    arithmetic: Arithmetic, capabilities: list[str], expected: str
) -> None:
    assert floating(arithmetic, capabilities) == expected


def test_openvino_and_the_service_agree_on_this_processor() -> None:
    has = "BF16" in openvino_core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    assert has == detect().bf16


def default_graph() -> str:
    return str(bundle.load(DEFAULT_BUNDLE).graph("fp16"))


def product_then_mean(*, flat: bool) -> openvino.Model:
    """A product of token vectors with a matrix, then their mean. With ``flat`` the tokens of all
    texts are rows of one matrix."""
    ids = opset13.parameter([-1, -1], np.int64, name="input_ids")
    table = opset13.constant(np.eye(7, 4, dtype=np.float32))
    tokens = opset13.gather(table, ids, opset13.constant(0))
    if flat:
        tokens = opset13.reshape(tokens, opset13.constant([-1, 4]), special_zero=False)
    product = opset13.matmul(tokens, opset13.constant(np.eye(4, dtype=np.float32)), False, False)
    if flat:
        product = opset13.reshape(product, opset13.constant([1, -1, 4]), special_zero=False)
    return openvino.Model([opset13.reduce_mean(product, opset13.constant([1]))], [ids])


def test_a_graph_is_cut_at_its_first_product_behind_the_pooling() -> None:
    core = openvino_core()
    ids = np.random.default_rng(0).integers(1000, 20_000, (4, 9))
    inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
    exact = {"INFERENCE_PRECISION_HINT": "f32"}
    whole = core.compile_model(default_graph(), "CPU", exact)(inputs)[0]
    parts = behind_pooling(core.read_model(default_graph()))
    assert len(parts) == 2
    found: Any = inputs
    for part in parts:
        found = [core.compile_model(part, "CPU", exact)(found)[0]]
    np.testing.assert_allclose(found[0], whole, atol=1e-6)


@pytest.mark.parametrize("flat", [False, True])
def test_products_of_token_vectors_are_not_cut(flat: bool) -> None:
    assert len(behind_pooling(product_then_mean(flat=flat))) == 1


@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_a_graph_without_its_token_vectors_computes_the_same_bits(precision: Any) -> None:
    graph = bundle.load(DEFAULT_BUNDLE).graph(precision)
    ids = np.random.default_rng(0).integers(1000, 20_000, (4, 9))
    inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
    exact = {"INFERENCE_PRECISION_HINT": "f32"}
    core = openvino_core()
    whole = core.compile_model(graph, "CPU", exact)(inputs)[0]
    model = core.read_model(graph)
    vectors = take_token_vectors(model)
    assert vectors is not None
    assert vectors.values.shape[0] > 30_000
    rest = core.compile_model(model, "CPU", exact)
    assert np.array_equal(rest(inputs | {"token_vectors": vectors.rows(ids)})[0], whole)
    # the control
    assert not np.array_equal(rest(inputs | {"token_vectors": vectors.rows(ids + 1)})[0], whole)


def test_engines_of_one_file_share_its_token_vectors(tmp_path: Path) -> None:
    source = bundle.load(DEFAULT_BUNDLE).graph("fp16")
    graph = tmp_path / "graph.onnx"
    shutil.copy(source, graph)
    first, second = (OpenVinoEngine(graph, "f32", 1, 1) for _ in range(2))
    assert first._vectors is second._vectors is not None
    # the control: another file took its place
    other = onnx.load(source)
    table = next(one for one in other.graph.initializer if list(one.dims) == [30522, 384])
    table.raw_data = table.raw_data[::-1]
    onnx.save(other, graph)
    third = OpenVinoEngine(graph, "f32", 1, 1)
    assert third._vectors is not None
    assert third._vectors is not first._vectors


@pytest.mark.skipif(not detect().bf16, reason="the processor has no bf16")
def test_other_texts_of_a_batch_do_not_change_a_vector_in_bf16() -> None:
    ids = np.random.default_rng(0).integers(1000, 20_000, (16, 24))

    def difference(run: Any) -> float:
        together: NDArray[np.float32] = run(ids)
        single = np.concatenate([run(ids[[row]]) for row in range(len(ids))])
        return float(np.abs(together - single).max())

    engine = OpenVinoEngine(bundle.load(DEFAULT_BUNDLE).graph("fp16"), "bf16", 1, 1)
    assert difference(lambda some: engine.run(some, np.ones_like(some))) == 0
    # the control: the graph in one piece
    hint = {"INFERENCE_PRECISION_HINT": "bf16"}
    whole = openvino_core().compile_model(default_graph(), "CPU", hint)
    assert difference(lambda some: np.array(whole([some, np.ones_like(some)])[0])) > 1e-4


# As the main thread of a service does, which gets SIGTERM after it has replaced its engines.
REPLACED = """
import os, signal, sys
from pathlib import Path
from docsplit.engines.openvino_cpu import OpenVinoEngine

engines = [OpenVinoEngine(Path(sys.argv[1]), "f32", 1, 1) for _ in range(2)]
while engines:
    del engines[0]
signal.signal(signal.SIGTERM, lambda *_: print("handled"))
os.kill(os.getpid(), signal.SIGTERM)
"""


def test_signals_reach_their_handler_after_engines_are_replaced() -> None:
    command = [sys.executable, "-c", REPLACED, default_graph()]
    found = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (found.returncode, found.stdout) == (0, "handled\n"), found.stderr
