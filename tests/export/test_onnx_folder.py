"""Folders with an ONNX graph, laid out as optimum-cli and hub repositories do."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnxruntime.transformers.float16 import convert_float_to_float16
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer
from torch import Tensor, nn

from docsplit.bundles.format import load
from export.__main__ import main
from export.engines import open_engine
from export.errors import ExportError
from export.gate import check_weights
from export.graph import write_graph
from export.onnx_folder import UNVERIFIED
from export.pipeline import Request
from export.pipeline import export as run
from export.source import open_source, reference_vectors
from export.texts import batches
from tests.export.checkpoints import cosines, encode
from tests.export.conftest import save_sentence_transformer

NAMES = ("input_ids", "attention_mask", "token_type_ids")


class Tokens(nn.Module):
    """What optimum exports of a plain encoder."""

    def __init__(self, model: Any, *, pools: bool) -> None:
        super().__init__()
        self.model: Any = model
        self.pools = pools

    def forward(self, ids: Tensor, mask: Tensor, types: Tensor) -> tuple[Tensor, ...]:
        given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}
        if not self.pools:
            return (self.model[0].auto_model(**given).last_hidden_state,)
        found = self.model(given)
        return found["token_embeddings"], found["sentence_embedding"]


def write(
    model: SentenceTransformer,
    path: Path,
    *,
    pools: bool = False,
    opset: int = 17,
    names: Sequence[str] = NAMES,
) -> None:
    outputs = ["token_embeddings", "sentence_embedding"] if pools else ["last_hidden_state"]
    axes = {0: "batch_size", 1: "sequence_length"}
    ids = torch.tensor([[2, 7, 8, 3], [2, 9, 3, 0]])
    with torch.no_grad(), warnings.catch_warnings():
        # the tracing exporter is deprecated
        warnings.simplefilter("ignore")
        torch.onnx.export(
            Tokens(model, pools=pools).eval(),
            (ids, torch.ones_like(ids), torch.zeros_like(ids)),
            str(path),
            input_names=list(names),
            output_names=outputs,
            dynamic_axes=dict.fromkeys([*names, outputs[0]], axes),
            opset_version=opset,
            dynamo=False,
        )


@pytest.fixture(scope="module")
def checkpoint(bert_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint") / "tiny"
    return save_sentence_transformer(
        bert_folder, folder, pooling="cls", normalise=True, prompts={"query": "query: "}
    )


def folder_of(checkpoint: Path, folder: Path, layout: str) -> Path:
    """A folder without weights of torch, and its graph."""
    shutil.copytree(checkpoint, folder)
    (folder / "model.safetensors").unlink()
    model = SentenceTransformer(
        str(checkpoint), device="cpu", model_kwargs={"attn_implementation": "eager"}
    )
    if layout == "hub":
        # settings above, the graph in a folder of its own
        (folder / "onnx").mkdir()
        write(model, folder / "onnx" / "model.onnx", opset=14)
    elif layout == "pooled":
        # optimum-cli of a sentence-transformers model leaves modules.json out
        (folder / "modules.json").unlink()
        write(model, folder / "model.onnx", pools=True)
    else:
        write(model, folder / "model.onnx", names=["ids.1", "mask.1", "segments"])
    return folder


@pytest.fixture(scope="module")
def hub_folder(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder_of(checkpoint, tmp_path_factory.mktemp("hub") / "folder", "hub")


@pytest.mark.parametrize("layout", ["hub", "pooled", "other names"])
def test_the_graph_of_a_folder_agrees_with_the_checkpoint(
    layout: str, checkpoint: Path, sentences: list[str], tmp_path: Path
) -> None:
    folder = folder_of(checkpoint, tmp_path / "folder", layout)
    source = open_source(str(folder))
    assert source.pooling == ("graph" if layout == "pooled" else "cls")
    assert source.prompts == {"query": "query: "}
    write_graph(source, tmp_path / "fp32.onnx")
    graph = onnx.load(tmp_path / "fp32.onnx").graph
    assert [value.name for value in graph.input] == list(NAMES[:2])
    assert [value.name for value in graph.output] == ["sentence_embedding"]
    texts = sentences[:16]
    reference = reference_vectors(open_source(str(checkpoint)), texts, batch_size=1).numpy()
    assert cosines(reference_vectors(source, texts).numpy(), reference).min() > 0.999999
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    _, engine = open_engine("fp16", tmp_path / "fp32.onnx", threads=1)
    for size in (1, 16):
        inputs = batches(tokenizer, texts, max_tokens=64, pad_token_id=0, size=size)
        vectors = np.concatenate([engine(batch) for batch in inputs])
        assert cosines(vectors, reference).min() > 0.999999


def test_a_bundle_of_a_folder(
    checkpoint: Path, hub_folder: Path, sentences: list[str], text_file: Path, tmp_path: Path
) -> None:
    request = Request(
        source=str(hub_folder),
        dest=tmp_path / "bundle",
        licence="MIT",
        calibration=text_file,
        paragraphs=200,
        precisions=("fp16",),
        thresholds={"fp16.neighbour_agreement": 0.7},
    )
    made = run(request)
    assert made.precisions["fp16"].kernels["Attention"] == 2
    reference = reference_vectors(open_source(str(checkpoint)), sentences).numpy()
    vectors = encode(load(tmp_path / "bundle"), sentences, size=8)
    assert cosines(vectors, reference).min() > 0.9999


def to_fp16(path: Path, *, outputs_too: bool = False) -> None:
    model = onnx.load(path)
    with warnings.catch_warnings():
        # the converter warns that it clamps the value for minus infinity
        warnings.simplefilter("ignore")
        half = convert_float_to_float16(model, keep_io_types=not outputs_too)
    onnx.save(half, path)


@pytest.fixture(scope="module")
def half_folder(hub_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose only graph is in fp16."""
    folder = shutil.copytree(hub_folder, tmp_path_factory.mktemp("half") / "folder")
    graph = folder / "onnx" / "model.onnx"
    to_fp16(graph)
    graph.rename(graph.with_name("model_fp16.onnx"))
    return folder


def test_a_graph_in_fp16_is_taken_only_if_each_form_is_accepted(
    half_folder: Path,
    checkpoint: Path,
    sentences: list[str],
    text_file: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    flags = ["--licence", "MIT", "--calibration", str(text_file), "--paragraphs", "200"]
    flags += ["--threads", "1", "--threshold", "fp16.neighbour_agreement=.7"]
    command = [str(half_folder), str(tmp_path / "bundle"), *flags]
    assert main(command) == 1
    assert "--accept takes model_fp16.onnx" in " ".join(capsys.readouterr().err.split())
    assert main([*command, "--accept", "fp16"]) == 1
    assert "each form: --accept fp16 int8" in " ".join(capsys.readouterr().err.split())
    assert main([*command, "--accept", "fp16", "--precision", "fp16"]) == 0
    bundle = load(tmp_path / "bundle")
    fp16 = bundle.manifest.precisions["fp16"]
    assert fp16.accepted == [UNVERIFIED]
    assert fp16.kernels["Attention"] == 2
    assert fp16.ranges is not None
    assert fp16.ranges.fp32_nodes == {}
    reference = reference_vectors(open_source(str(checkpoint)), sentences).numpy()
    assert cosines(encode(bundle, sentences, size=8), reference).min() > 0.9999
    verify = ["verify", str(bundle.root), "--source", str(half_folder), *flags[2:]]
    assert main(verify) == 0


def test_a_widened_graph_differs_from_fp32_only_by_its_weights(
    checkpoint: Path, sentences: list[str], tmp_path: Path
) -> None:
    folder = folder_of(checkpoint, tmp_path / "folder", "other names")
    full = open_source(str(folder))
    to_fp16(folder / "model.onnx", outputs_too=True)
    half = open_source(str(folder), half=True)
    assert (full.unverified, half.unverified) == (None, UNVERIFIED)
    kinds = [[node.op_type for node in source.encoder.model.graph.node] for source in (full, half)]
    assert kinds[0] == kinds[1]
    texts = sentences[:16]
    vectors = [reference_vectors(source, texts).numpy() for source in (full, half)]
    found = cosines(*vectors)
    assert found.min() > 0.9999
    # the control: the weights were rounded
    assert np.abs(vectors[0] - vectors[1]).max() > 1e-6


def rename(path: Path) -> None:
    path.rename(path.with_name("model_quantized.onnx"))


def fuse(path: Path) -> None:
    model = onnx.load(path)
    model.graph.node[0].domain = "com.microsoft"
    onnx.save(model, path)


def add_input(path: Path) -> None:
    model = onnx.load(path)
    model.graph.input.append(onnx.helper.make_tensor_value_info("pixels", 1, [1]))
    onnx.save(model, path)


def reach_outside(path: Path) -> None:
    """Weights in an external file above the folder."""
    model = onnx.load(path)
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../../secret")
    path.write_bytes(model.SerializeToString())


def name_no_heads(path: Path) -> None:
    file = path.parents[1] / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"num_attention_heads": 0}))


def reach_by_modules(outside: Callable[[Path], str]) -> Callable[[Path], None]:
    """All files next to the graph, and a ``modules.json`` that names a pooling outside."""

    def harm(path: Path) -> None:
        folder, beside = path.parents[1], path.parent
        shutil.copytree(folder / "1_Pooling", folder.parent / "elsewhere")
        for file in folder.iterdir():
            if file != beside:
                file.rename(beside / file.name)
        modules = json.loads((beside / "modules.json").read_text())
        modules[1]["path"] = outside(beside)
        (beside / "modules.json").write_text(json.dumps(modules))

    return harm


def linked(beside: Path) -> str:
    (beside / "link").symlink_to(beside.parents[1] / "elsewhere")
    return "link"


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (
            reach_by_modules(lambda _: "../../elsewhere"),
            r"onnx/modules\.json names '\.\./\.\./elsewhere', a path outside the checkpoint",
        ),
        (
            reach_by_modules(lambda beside: str(beside.parents[1] / "elsewhere")),
            r"onnx/modules\.json names '/.*elsewhere', a path outside the checkpoint",
        ),
        (reach_by_modules(linked), "link is a link that leads outside the folder"),
        (name_no_heads, r"config\.json names 0 attention heads for vectors of 32 dimensions"),
        (rename, r"has model_quantized\.onnx, but no model\.onnx in fp32"),
        (to_fp16, r"model\.onnx: has weights in fp16; a bundle needs the graph in fp32"),
        (fuse, r"model\.onnx: has \w+; a bundle needs the graph in fp32, before it is optimised"),
        (add_input, r"the inputs .*pixels are unsupported"),
        (reach_outside, r"model\.onnx cannot be opened as an encoder"),
        (lambda path: path.write_bytes(path.read_bytes()[:5000]), "cannot be opened as an encoder"),
        (lambda path: path.write_bytes(b""), r"model\.onnx: is no complete ONNX graph"),
    ],
)
def test_a_folder_without_a_plain_graph_is_refused_by_name(
    harm: Callable[[Path], object], reason: str, hub_folder: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(hub_folder, tmp_path / "folder")
    harm(folder / "onnx" / "model.onnx")
    with pytest.raises(ExportError, match=reason):
        open_source(str(folder))


def test_a_graph_with_a_weight_that_is_not_finite_is_refused(
    hub_folder: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(hub_folder, tmp_path / "folder")
    source = open_source(str(folder))
    check_weights(source)
    digest = source.weights_digest()
    model = onnx.load(folder / "onnx" / "model.onnx")
    tensor = next(t for t in model.graph.initializer if len(t.dims) == 2)
    values = np.array(onnx.numpy_helper.to_array(tensor))
    values[1, 2] = np.nan
    tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
    onnx.save(model, folder / "onnx" / "model.onnx")
    poisoned = open_source(str(folder))
    with pytest.raises(ExportError, match=rf"the weight .*{tensor.name} holds .* not finite"):
        check_weights(poisoned)
    assert poisoned.weights_digest() != digest


def test_a_checkpoint_with_a_graph_next_to_it_is_traced(checkpoint: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(checkpoint, tmp_path / "both")
    (folder / "onnx").mkdir()
    (folder / "onnx" / "model.onnx").write_bytes(b"")
    assert type(open_source(str(folder)).encoder).__name__ == "BertModel"
