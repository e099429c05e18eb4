"""The packed form: built, checked, and computed by the documented operators in numpy, because its
kernels exist only on CUDA."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from export.engines import Inputs, open_engine
from export.errors import ExportError
from export.fp16 import PACKED_FILE, fuse, pack, validate, write_fp16, write_packed
from export.graph import OUTPUT, write_graph
from export.pipeline import Request
from export.pipeline import export as run
from export.source import Source, open_source, reference_vectors
from export.texts import batches, write_tokenizer
from tests.service.test_cuda import why_not

KERNELS = {
    "BiasGelu": 2,
    "PackedMultiHeadAttention": 2,
    "RemovePadding": 1,
    "RestorePadding": 1,
    "SkipLayerNormalization": 4,
}


class Contrib(OpRun):
    """A contrib operator in numpy, by ONNX Runtime's ContribOperators.md."""

    op_domain = "com.microsoft"


def normalised(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray, epsilon: float) -> np.ndarray:
    x = x.astype(np.float32)
    x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + epsilon)
    return x * gamma + beta


class SkipLayerNormalization(Contrib):
    def _run(self, x, skip, gamma, beta, bias, epsilon=1e-12):  # type: ignore[no-untyped-def]
        return (normalised(x + skip + bias, gamma, beta, epsilon).astype(x.dtype),)


class EmbedLayerNormalization(Contrib):
    def _run(self, ids, types, words, places, kinds, gamma, beta, mask, epsilon=1e-12):  # type: ignore[no-untyped-def]
        total = words[ids] + places[np.arange(ids.shape[1])] + kinds[types]
        output = normalised(total, gamma, beta, epsilon).astype(words.dtype)
        return output, mask.sum(axis=1).astype(np.int32)


class BiasGelu(Contrib):
    def _run(self, x, bias):  # type: ignore[no-untyped-def]
        from scipy.special import erf

        x = (x + bias).astype(np.float32)
        return ((x * (1 + erf(x / np.sqrt(2))) / 2).astype(bias.dtype),)


class RemovePadding(Contrib):
    def _run(self, x, counts):  # type: ignore[no-untyped-def]
        rows, tokens, _ = x.shape
        real = np.arange(tokens) < counts[:, None]
        offsets = np.arange(rows * tokens).reshape(rows, tokens)
        order = np.concatenate([offsets[real], offsets[~real]]).astype(np.int32)
        ends = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        longest = np.array([counts.max()], dtype=np.int32)
        return x[real], order.reshape(rows, tokens), ends, longest


class RestorePadding(Contrib):
    def _run(self, x, offsets):  # type: ignore[no-untyped-def]
        output = np.zeros((offsets.size, x.shape[1]), dtype=x.dtype)
        output[offsets.ravel()[: len(x)]] = x
        return (output.reshape(*offsets.shape, -1),)


class PackedMultiHeadAttention(Contrib):
    def _run(self, query, key, value, bias, offsets, ends, num_heads=0, scale=0.0):  # type: ignore[no-untyped-def]
        assert key is None or key.size == 0
        assert value is None or value.size == 0
        tokens, heads, _, size = query.shape
        assert heads == num_heads
        parts = query.astype(np.float32) + bias.reshape(3, heads, size).transpose(1, 0, 2)
        output = np.zeros((tokens, heads, size), dtype=np.float32)
        for start, end in pairwise(ends):
            q, k, v = parts[start:end].transpose(2, 1, 0, 3)
            scores = q @ k.transpose(0, 2, 1) * (scale or size**-0.5)
            shares = np.exp(scores - scores.max(-1, keepdims=True))
            shares /= shares.sum(-1, keepdims=True)
            output[start:end] = (shares @ v).transpose(1, 0, 2)
        return (output.reshape(tokens, -1).astype(query.dtype),)


OPERATORS: list[type[OpRun]] = [
    SkipLayerNormalization,
    EmbedLayerNormalization,
    BiasGelu,
    RemovePadding,
    RestorePadding,
    PackedMultiHeadAttention,
]


@pytest.fixture(scope="module", params=["bert", "roberta"])
def source(request: pytest.FixtureRequest) -> Source:
    folder: Path = request.getfixturevalue(f"{request.param}_folder")
    return open_source(str(folder), max_tokens=64)


@pytest.fixture(scope="module")
def inputs(
    source: Source, sentences: list[str], tmp_path_factory: pytest.TempPathFactory
) -> Inputs:
    """A batch of 16 rows of 3 to 64 tokens."""
    tokenizer = write_tokenizer(source, tmp_path_factory.mktemp("tokenizer"), sentences)
    pad = int(source.tokenizer.pad_token_id)
    [batch] = batches(tokenizer, sentences[:16], max_tokens=64, pad_token_id=pad, size=16)
    return batch


@pytest.fixture(scope="module")
def fp16(source: Source, inputs: Inputs, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fp16")
    write_graph(source, folder / "model.onnx")
    write_fp16(fuse(source, folder / "model.onnx", [inputs]), folder)
    return folder / "model.fp16.onnx"


def test_packed_graphs_are_built_and_their_kernels_counted(
    source: Source, fp16: Path, tmp_path: Path
) -> None:
    embeddings = "EmbedLayerNormalization" if source.name == "tiny-bert" else "LayerNormalization"
    assert write_packed(fp16, tmp_path) == KERNELS | {embeddings: 1}
    first = (tmp_path / PACKED_FILE).read_bytes()
    write_packed(fp16, tmp_path)
    assert (tmp_path / PACKED_FILE).read_bytes() == first


def test_onnx_runtime_reads_the_graph_and_lacks_only_the_kernels(
    fp16: Path, tmp_path: Path
) -> None:
    write_packed(fp16, tmp_path)
    with pytest.raises(Exception, match=r"(?i)kernel|implementation") as refused:
        onnxruntime.InferenceSession(tmp_path / PACKED_FILE, providers=["CPUExecutionProvider"])
    assert type(refused.value).__name__ == "NotImplemented"
    # the control: a wrong graph is refused before the search for its kernels
    broken = onnx.load(tmp_path / PACKED_FILE)
    next(n for n in broken.graph.node if n.op_type == "RestorePadding").input[1] = "nothing"
    with pytest.raises(Exception, match="nothing") as refused:
        onnxruntime.InferenceSession(broken.SerializeToString(), providers=["CPUExecutionProvider"])
    assert type(refused.value).__name__ != "NotImplemented"


def test_documented_operators_give_the_vectors_of_the_source(
    source: Source, inputs: Inputs, fp16: Path, sentences: list[str]
) -> None:
    evaluator = ReferenceEvaluator(pack(onnx.load(fp16)), new_ops=OPERATORS)
    [vectors] = map(np.asarray, evaluator.run([OUTPUT], inputs))
    expected = reference_vectors(source, sentences[:16]).numpy()
    assert (vectors * expected).sum(axis=1).min() > 0.9999
    # the control: with the projection's columns in the old order, the vectors differ
    unmoved = pack(onnx.load(fp16))
    before = {t.name: t for t in onnx.load(fp16).graph.initializer}
    for tensor in unmoved.graph.initializer:
        if tensor.name.endswith("_qkv_weight"):
            moved = numpy_helper.to_array(tensor)
            assert not np.array_equal(moved, numpy_helper.to_array(before[tensor.name]))
            tensor.CopyFrom(before[tensor.name])
    evaluator = ReferenceEvaluator(unmoved, new_ops=OPERATORS)
    [others] = map(np.asarray, evaluator.run([OUTPUT], inputs))
    assert (others * expected).sum(axis=1).min() < 0.99


def test_a_graph_without_fused_attention_is_refused(fp16: Path) -> None:
    unfused = onnx.load(fp16.with_name("model.onnx"))
    with pytest.raises(ExportError, match="no attention kernel"):
        pack(unfused)


def test_a_mask_without_row_lengths_is_refused(fp16: Path) -> None:
    masked = onnx.load(fp16)
    for node in masked.graph.node:
        if node.op_type == "Attention":
            node.input[3] = "attention_mask"
    with pytest.raises(ExportError, match="masks by attention_mask"):
        pack(masked)


def test_a_missing_kernel_is_refused(fp16: Path) -> None:
    packed = pack(onnx.load(fp16))
    validate(packed, 2)
    with pytest.raises(ExportError, match="3 attention layers became"):
        validate(packed, 3)
    packed.graph.node.remove(next(n for n in packed.graph.node if n.op_type == "RestorePadding"))
    with pytest.raises(ExportError, match="2 PackedMultiHeadAttention"):
        validate(packed, 2)


@pytest.fixture
def request_packed(bert_folder: Path, text_file: Path, tmp_path: Path) -> Request:
    return Request(
        source=str(bert_folder),
        dest=tmp_path / "bundle",
        licence="MIT",
        max_tokens=64,
        calibration=text_file,
        paragraphs=200,
        precisions=("fp16", "packed"),
    )


@pytest.mark.skipif(why_not() is None, reason="CUDA is here")
def test_without_cuda_no_packed_graph_is_written(request_packed: Request, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="packed: this machine cannot measure its parity"):
        run(request_packed)
    assert not request_packed.dest.exists()
    with pytest.raises(ExportError, match="packed: this machine cannot measure its parity"):
        open_engine("packed", tmp_path / PACKED_FILE, threads=1)


@pytest.mark.gpu
@pytest.mark.skipif(why_not() is not None, reason=why_not() or "")
@pytest.mark.usefixtures("neighbours_of_random_encoders")
def test_on_cuda_the_packed_graph_passes_the_gate(request_packed: Request) -> None:
    packed = run(request_packed).precisions["packed"]
    assert packed.kernels == KERNELS | {"EmbedLayerNormalization": 1}
    assert "CUDA" in packed.parity.engine
