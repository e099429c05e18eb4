"""Export tiny checkpoints, compare with sentence-transformers, and test the gate."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from tokenizers import Tokenizer

from docsplit.bundles.format import Bundle, load, seal
from docsplit.bundles.manifest import PrecisionName
from export import fp16, texts
from export.__main__ import main
from export.engines import Inputs, open_engine
from export.errors import ExportError
from export.fp16 import Fused, write_packed
from export.graph import INPUTS, OUTPUT
from export.pipeline import Request
from export.pipeline import export as run
from export.source import Source, open_source, reference_vectors
from export.texts import batches
from export.thresholds import THRESHOLDS
from tests.conftest import ONLY_NIGHTLY
from tests.export.checkpoints import encode
from tests.export.conftest import save_sentence_transformer
from tests.service.test_cuda import why_not

pytestmark = pytest.mark.usefixtures("neighbours_of_random_encoders")
Order = Callable[..., Request]
NIGHTLY_POOLINGS = [pytest.param(pooling, marks=ONLY_NIGHTLY) for pooling in ("mean", "cls")]


@pytest.fixture(scope="module")
def order(text_file: Path) -> Order:
    def make(source: Path, dest: Path, **settings: Any) -> Request:
        return Request(
            **{
                "source": str(source),
                "dest": dest,
                "licence": "Apache-2.0",
                "max_tokens": 64,
                "calibration": text_file,
                "paragraphs": 200,
                "precisions": ("fp16",),
                **settings,
            }
        )

    return make


@pytest.fixture(scope="module")
def bundle(order: Order, shallow_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """A bundle of both precisions."""
    dest = tmp_path_factory.mktemp("bundles") / "tiny"
    steps: list[str] = []
    run(
        order(shallow_folder, dest, precisions=("fp16", "int8")),
        lambda step, share=0.0: steps.append(step),
    )
    assert "writing the int8 graph" in steps
    return load(dest)


def test_the_manifest_describes_the_bundle(bundle: Bundle, shallow_folder: Path) -> None:
    made = bundle.manifest
    assert (made.name, made.dimensions, made.pooling, made.max_tokens) == ("tiny", 32, "mean", 64)
    assert made.lineage.source == "tiny-bert"
    assert made.lineage.source_sha256 == open_source(str(shallow_folder)).weights_digest()
    assert made.precisions["fp16"].kernels == {
        "Attention": 1,
        "BiasGelu": 1,
        "EmbedLayerNormalization": 1,
        "SkipLayerNormalization": 2,
    }
    assert made.precisions["int8"].kernels["MatMul int8"] > 0
    assert made.precisions["int8"].ranges is None
    ranges = made.precisions["fp16"].ranges
    assert ranges is not None
    assert (ranges.passages, ranges.fp32_nodes) == (texts.CALIBRATION, {})
    assert 1 < ranges.largest < ranges.limit
    for name, precision in made.precisions.items():
        assert precision.parity.paragraphs == 200
        assert precision.parity.thresholds == THRESHOLDS[name]
    text = (bundle.root / "bundle.json").read_text()
    assert str(shallow_folder.parent) not in text
    assert not [p for p in bundle.root.parent.iterdir() if p != bundle.root]


def test_the_graph_has_two_integer_inputs_and_one_fp32_output(bundle: Bundle) -> None:
    graph = onnx.load(str(bundle.graph("fp16"))).graph
    types = {v.name: v.type.tensor_type.elem_type for v in [*graph.input, *graph.output]}
    int64, float32 = onnx.TensorProto.INT64, onnx.TensorProto.FLOAT
    assert types == {**dict.fromkeys(INPUTS, int64), OUTPUT: float32}
    weights = {t.data_type for t in graph.initializer if np.prod(t.dims) > 32}
    assert weights == {onnx.TensorProto.FLOAT16}


@pytest.mark.parametrize(
    ("precision", "runtime", "least"), [("fp16", "onnx", 0.9999), ("int8", "openvino", 0.98)]
)
def test_each_graph_agrees_with_the_source(
    bundle: Bundle,
    shallow_folder: Path,
    sentences: list[str],
    tmp_path: Path,
    precision: PrecisionName,
    runtime: str,
    least: float,
) -> None:
    vectors = encode(bundle, sentences, size=16, precision=precision, runtime=runtime)
    reference = reference_vectors(open_source(str(shallow_folder)), sentences).numpy()
    assert (vectors * reference).sum(axis=1).min() > least
    # The control: another pooling gives other vectors.
    other = save_sentence_transformer(
        shallow_folder, tmp_path / "other", pooling="cls", normalise=True
    )
    foreign = reference_vectors(open_source(str(other)), sentences).numpy()
    assert (vectors * foreign).sum(axis=1).min() < 0.97


# tests of other bundles have the mean and the first token
@pytest.mark.parametrize("pooling", [*NIGHTLY_POOLINGS, "max"])
@pytest.mark.parametrize("family", ["bert", pytest.param("roberta", marks=ONLY_NIGHTLY)])
def test_vectors_equal_those_of_sentence_transformers(
    order: Order,
    family: str,
    pooling: str,
    shallow_folder: Path,
    roberta_folder: Path,
    sentences: list[str],
    tmp_path: Path,
) -> None:
    encoder = {"bert": shallow_folder, "roberta": roberta_folder}[family]
    folder = save_sentence_transformer(
        encoder, tmp_path / "model", pooling=pooling, normalise=pooling == "mean"
    )
    manifest: Any = run(order(folder, tmp_path / "bundle"))
    assert manifest.pooling == pooling
    assert sum(manifest.precisions["fp16"].kernels.values()) > 0
    vectors = encode(load(tmp_path / "bundle"), sentences, size=16)
    reference = reference_vectors(open_source(str(folder)), sentences).numpy()
    assert (vectors * reference).sum(axis=1).min() > 0.9999
    # The control: another pooling gives other vectors.
    other = save_sentence_transformer(
        encoder, tmp_path / "other", pooling="cls" if pooling == "mean" else "mean", normalise=True
    )
    foreign = reference_vectors(open_source(str(other)), sentences).numpy()
    assert (vectors * foreign).sum(axis=1).min() < 0.99


def test_padding_does_not_change_a_vector(bundle: Bundle, sentences: list[str]) -> None:
    together = encode(bundle, sentences, size=len(sentences))
    single = encode(bundle, sentences, size=1)
    assert np.abs(together - single).max() < 2e-3
    # The control: without the mask, padding counts.
    tokenizer = Tokenizer.from_file(str(bundle.path("tokenizer.json")))
    [inputs] = batches(tokenizer, sentences, max_tokens=64, pad_token_id=0, size=len(sentences))
    _, engine = open_engine("fp16", bundle.graph("fp16"), threads=1)
    unmasked = engine({**inputs, "attention_mask": np.ones_like(inputs["attention_mask"])})
    assert np.abs(unmasked - single).max() > 0.05


def test_the_tokenizer_neither_cuts_nor_pads(bundle: Bundle) -> None:
    tokenizer = Tokenizer.from_file(str(bundle.path("tokenizer.json")))
    assert tokenizer.truncation is None
    assert tokenizer.padding is None
    assert len(tokenizer.encode("word " * 500).ids) > 500


def test_an_export_can_be_repeated_over_its_bundle_with_force(
    order: Order, bundle: Bundle, shallow_folder: Path, tmp_path: Path
) -> None:
    dest = shutil.copytree(bundle.root, tmp_path / "bundle")
    with pytest.raises(ExportError, match="already exists; --force"):
        run(order(shallow_folder, dest, name="second"))
    assert load(dest).manifest.name == "tiny"
    both: tuple[PrecisionName, ...] = ("fp16", "int8")
    again = run(order(shallow_folder, dest, name="second", precisions=both, force=True))
    assert load(dest).manifest == again
    assert again.name == "second"
    assert list(tmp_path.iterdir()) == [dest]
    assert again.files == bundle.manifest.files
    assert again.revision == bundle.manifest.revision


@pytest.fixture
def perturbed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compute the source's vectors, then change the weights before the graph is written."""
    fuse = fp16.fuse

    def perturb(source: Source, fp32: Path, batches: list[Inputs], **options: Any) -> Fused:
        model = onnx.load(str(fp32))
        tensor = max(model.graph.initializer, key=lambda t: np.prod(t.dims))
        weights = onnx.numpy_helper.to_array(tensor).copy()
        weights += np.random.default_rng(0).normal(0, 0.1, weights.shape).astype(weights.dtype)
        tensor.CopyFrom(onnx.numpy_helper.from_array(weights, tensor.name))
        onnx.save(model, str(fp32))
        return fuse(source, fp32, batches, **options)

    monkeypatch.setattr(fp16, "fuse", perturb)


@pytest.mark.usefixtures("perturbed")
def test_a_graph_too_far_from_the_source_is_not_written(
    order: Order, shallow_folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(ExportError, match=r"fp16 is too far from the source .* cosine_min"):
        run(order(shallow_folder, tmp_path / "bundle"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("perturbed")
def test_a_graph_too_far_from_the_source_does_not_replace_a_bundle(
    order: Order, bundle: Bundle, shallow_folder: Path, tmp_path: Path
) -> None:
    dest = shutil.copytree(bundle.root, tmp_path / "bundle")
    with pytest.raises(ExportError, match=r"fp16 is too far from the source .* cosine_min"):
        run(order(shallow_folder, dest, force=True))
    assert load(dest).manifest == bundle.manifest
    assert list(tmp_path.iterdir()) == [dest]


def test_an_interrupted_export_leaves_nothing(
    order: Order, shallow_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(fp16, "fuse", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run(order(shallow_folder, tmp_path / "bundle"))
    assert list(tmp_path.iterdir()) == []


def test_force_removes_no_other_folder(order: Order, shallow_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("irreplaceable")
    with pytest.raises(ExportError, match="is not a bundle"):
        run(order(shallow_folder, tmp_path, force=True))
    assert (tmp_path / "thesis.txt").read_text() == "irreplaceable"


@ONLY_NIGHTLY
def test_a_folder_that_appears_meanwhile_stays(
    order: Order, shallow_folder: Path, tmp_path: Path
) -> None:
    thesis = tmp_path / "b" / "thesis.txt"

    def appear(step: str, share: float = 0.0) -> None:
        if step == "sealing the bundle":
            thesis.parent.mkdir()
            thesis.write_text("irreplaceable")

    with pytest.raises(ExportError, match="already exists"):
        run(order(shallow_folder, tmp_path / "b"), appear)
    assert thesis.read_text() == "irreplaceable"
    assert list(tmp_path.iterdir()) == [thesis.parent]


def test_a_name_that_no_bundle_can_have_is_refused_at_the_start(
    order: Order, tmp_path: Path
) -> None:
    source = tmp_path / "nowhere"
    for dest, name in ((tmp_path / "b", "a name"), (tmp_path / "my bundle", None)):
        with pytest.raises(ExportError, match=r"cannot have the name .* --name"):
            run(order(source, dest, name=name))


def test_a_prompt_that_fills_a_window_is_refused_before_any_graph(
    order: Order, shallow_folder: Path, tmp_path: Path
) -> None:
    """The service would refuse the bundle."""
    prompts = {"query": "query: ", "task": "word " * 40}
    folder = save_sentence_transformer(
        shallow_folder, tmp_path / "prompted", pooling="mean", normalise=True, prompts=prompts
    )
    steps: list[str] = []
    with pytest.raises(
        ExportError, match=r"the prompt 'task' of \d+ tokens leaves no room for text"
    ):
        run(
            order(folder, tmp_path / "made", max_tokens=32),
            lambda step, share=0.0: steps.append(step),
        )
    assert steps[-1] == "writing the tokenizer"
    assert not (tmp_path / "made").exists()


def test_a_pattern_without_operator_is_refused(
    order: Order, shallow_folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(ExportError, match=r"--keep-float nowhere: no operator .*MatMul"):
        run(order(shallow_folder, tmp_path / "b", precisions=("int8",), keep_float="nowhere"))
    assert list(tmp_path.iterdir()) == []


def verify(folder: Path, source: Path, text_file: Path) -> int:
    """The exit status of ``docsplit-export verify``."""
    flags = ["--source", str(source), "--calibration", str(text_file), "--paragraphs", "200"]
    return main(["verify", str(folder), *flags])


def test_verify_repeats_the_gate(
    bundle: Bundle, shallow_folder: Path, text_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify(bundle.root, shallow_folder, text_file) == 0
    said = capsys.readouterr().out
    found = re.findall(r"(\w+): cosine mean ([\d.]+) \(the bundle says ([\d.]+)\)", said)
    assert [name for name, _, _ in found] == list(bundle.manifest.precisions)
    for name, measured, stated in found:
        assert float(measured) == pytest.approx(float(stated), abs=1e-4)
        assert float(stated) == round(bundle.manifest.precisions[name].parity.cosine_mean, 6)


@pytest.mark.skipif(why_not() is None, reason="CUDA is here")
def test_verify_reports_unmeasured_graphs(
    bundle: Bundle,
    shallow_folder: Path,
    text_file: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = shutil.copytree(bundle.root, tmp_path / "with-packed")
    write_packed(folder / "model.fp16.onnx", folder)
    fp16 = bundle.manifest.precisions["fp16"]
    packed = fp16.model_copy(update={"file": "model.packed.onnx"})
    fields = bundle.manifest.model_dump(exclude={"files", "revision"})
    seal(folder, **fields | {"precisions": {"fp16": fp16, "packed": packed}})
    assert verify(folder, shallow_folder, text_file) == 0
    said = capsys.readouterr().out
    assert "packed: only its digest" in said
    assert "fp16: cosine mean" in said
    assert "packed: cosine" not in said


def test_the_gate_refuses_another_source_and_a_changed_graph(
    bundle: Bundle,
    shallow_folder: Path,
    roberta_folder: Path,
    text_file: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert verify(bundle.root, roberta_folder, text_file) == 1
    assert "its weights differ" in capsys.readouterr().err
    folder = shutil.copytree(bundle.root, tmp_path / "changed")
    model = onnx.load(folder / "model.fp16.onnx")
    table = max(model.graph.initializer, key=lambda tensor: tensor.dims[0] if tensor.dims else 0)
    values = onnx.numpy_helper.to_array(table)
    table.CopyFrom(onnx.numpy_helper.from_array(values[::-1].copy(), table.name))
    onnx.save(model, folder / "model.fp16.onnx")
    fields = bundle.manifest.model_dump(exclude={"files", "revision"})
    seal(folder, **fields | {"precisions": bundle.manifest.precisions})
    assert verify(folder, shallow_folder, text_file) == 1
    assert "too far from the source" in capsys.readouterr().err
