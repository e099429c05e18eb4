"""Export every supported kind of encoder with every kind of tail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import (
    Dense,
    Normalize,
    Pooling,
    Transformer,
)
from tokenizers import Tokenizer
from torch import nn

from docsplit.bundles.format import Bundle, load
from docsplit.bundles.manifest import Manifest, PrecisionName
from export.engines import open_engine
from export.graph import write_graph
from export.int8 import quantise, write_int8
from export.pipeline import Request
from export.pipeline import export as run
from export.source import open_source, reference_vectors
from export.texts import batches
from tests.conftest import ONLY_NIGHTLY
from tests.export.checkpoints import LOCAL, WINDOW, cosines, encode, opened, save_encoder

pytestmark = pytest.mark.usefixtures("neighbours_of_random_encoders")


@dataclass(frozen=True)
class Kind:
    """A checkpoint's tail and a different one."""

    pooling: str
    after: Callable[[], list[nn.Module]]
    dimensions: int
    said: str
    # another pooling, or the modules without one of them: both give other vectors
    wrong_pooling: str | None = None
    prompts: dict[str, str] | None = None


PROMPTS = {"query": "query: ", "passage": "passage: "}
KINDS = {
    "bert": Kind(
        "cls",
        lambda: [
            Dense(32, 32, activation_function=nn.Identity(), use_residual=True),
            Normalize(),
            Dense(32, 48),
        ],
        48,
        "Dense 32→32 Identity, Normalize, Dense 32→48 Tanh",
        prompts=PROMPTS,
    ),
    "camembert": Kind("max", list, 32, "", wrong_pooling="mean"),
    # the control drops the first Dense, and the shapes still fit
    "distilbert": Kind(
        "mean",
        lambda: [Dense(32, 32, activation_function=nn.GELU()), Dense(32, 40, bias=False)],
        40,
        "Dense 32→32 GELU, Dense 32→40 Tanh",
    ),
    "electra": Kind(
        "cls",
        lambda: [Dense(32, 24), Normalize()],
        24,
        "Dense 32→24 Tanh, Normalize",
        wrong_pooling="mean",
    ),
    "modernbert": Kind(
        "mean", lambda: [Normalize()], 32, "Normalize", wrong_pooling="cls", prompts=PROMPTS
    ),
    "mpnet": Kind("mean", lambda: [Normalize()], 32, "Normalize", wrong_pooling="cls"),
    "roberta": Kind(
        "max", lambda: [Dense(32, 16), Normalize()], 16, "Dense 32→16 Tanh, Normalize", "mean"
    ),
    "xlm-roberta": Kind(
        "mean", lambda: [Normalize()], 32, "Normalize", wrong_pooling="max", prompts=PROMPTS
    ),
}


@dataclass(frozen=True)
class Made:
    family: str
    folder: Path
    bundle: Bundle

    @property
    def manifest(self) -> Manifest:
        return self.bundle.manifest


# BERT, RoBERTa and ALBERT have their layers, and the others here have their tails
_BY_NIGHT = ("camembert", "electra", "xlm-roberta")


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(family, marks=ONLY_NIGHTLY if family in _BY_NIGHT else ())
        for family in sorted(KINDS)
    ],
)
def made(
    request: pytest.FixtureRequest,
    bert_folder: Path,
    roberta_folder: Path,
    text_file: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Made:
    """A bundle of each kind; ModernBERT's has both precisions."""
    family: str = request.param
    kind = KINDS[family]
    root = tmp_path_factory.mktemp(family)
    encoder = save_encoder(family, bert_folder, roberta_folder, root / "encoder")
    torch.manual_seed(1)
    modules = [
        Transformer(str(encoder), max_seq_length=WINDOW),
        Pooling(32, pooling_mode=kind.pooling),
        *kind.after(),
    ]
    folder = root / "checkpoint"
    SentenceTransformer(modules=modules, device="cpu", prompts=kind.prompts).save_pretrained(
        str(folder), create_model_card=False
    )
    precisions: tuple[PrecisionName, ...] = ("fp16",)
    if family == "modernbert":
        precisions = ("fp16", "int8")
    run(
        Request(
            source=str(folder),
            dest=root / "bundle",
            licence="Apache-2.0",
            calibration=text_file,
            paragraphs=200,
            precisions=precisions,
        )
    )
    return Made(family, folder, load(root / "bundle"))


def _altered(folder: Path, kind: Kind) -> SentenceTransformer:
    """The checkpoint with another pooling, or without its first Dense module."""
    transformer, pooling, *after = SentenceTransformer(str(folder), device="cpu")
    if kind.wrong_pooling is None:
        return SentenceTransformer(modules=[transformer, pooling, *after[1:]], device="cpu")
    other = Pooling(32, pooling_mode=kind.wrong_pooling)
    return SentenceTransformer(modules=[transformer, other, *after], device="cpu")


def test_a_bundle_of_each_kind_agrees_with_its_source(made: Made, sentences: list[str]) -> None:
    kind = KINDS[made.family]
    assert (made.manifest.pooling, made.manifest.dimensions) == (kind.pooling, kind.dimensions)
    assert made.manifest.max_tokens == WINDOW
    assert made.manifest.lineage.settings["source_modules"] == kind.said
    assert made.manifest.precisions["fp16"].kernels["SkipLayerNormalization"] >= 4
    sentences = sentences[:32]
    # one at a time, the source has no padding
    source = open_source(str(made.folder))
    reference = reference_vectors(source, sentences, batch_size=1).numpy()
    lengths = {len(i) for i in source.tokenizer(sentences, verbose=False)["input_ids"]}
    assert min(lengths) < LOCAL < WINDOW <= max(lengths)
    for precision, runtime, least in (
        ("fp16", "onnx", 0.9999),
        ("fp16", "openvino", 0.9999),
        ("int8", "openvino", 0.98),
    ):
        if precision not in made.manifest.precisions:
            continue
        engine = opened(made.bundle, precision, runtime)
        for size in (1, 5, len(sentences)):
            vectors = encode(made.bundle, sentences, size=size, engine=engine)
            assert cosines(vectors, reference).min() > least
    model = _altered(made.folder, kind)
    model.max_seq_length = WINDOW
    foreign = model.encode(sentences, normalize_embeddings=True, show_progress_bar=False)
    assert cosines(foreign, reference).min() < 0.99


def test_prompts_equal_those_of_the_source(made: Made, sentences: list[str]) -> None:
    prompts = KINDS[made.family].prompts or {}
    assert made.manifest.prompts == prompts
    model = SentenceTransformer(str(made.folder), device="cpu")
    for name, prompt in prompts.items():
        reference = model.encode(sentences[:8], prompt_name=name, normalize_embeddings=True)
        vectors = encode(made.bundle, [prompt + text for text in sentences[:8]], size=8)
        assert cosines(vectors, reference).min() > 0.9999
        assert cosines(encode(made.bundle, sentences[:8], size=8), reference).min() < 0.9999


def test_the_digest_covers_dense_modules(made: Made) -> None:
    source = open_source(str(made.folder))
    assert source.weights_digest() == made.manifest.lineage.source_sha256
    bare = open_source(str(made.folder.parent / "encoder"))
    dense = [m for m in source.after if isinstance(m, Dense)]
    # without Dense it covers only the encoder, so older bundles without Dense verify
    assert (source.weights_digest() == bare.weights_digest()) == (not dense)
    for module in dense:
        before = source.weights_digest()
        with torch.no_grad():
            module.linear.weight[0, 0] += 1e-3
        assert source.weights_digest() != before


def test_dense_modules_are_computed_in_fp32(made: Made) -> None:
    graph = onnx.load(str(made.bundle.graph("fp16"))).graph
    weights = {t.name: t.data_type for t in graph.initializer}
    dense = [n for n in graph.node if n.name.startswith("/tail/") and "linear" in n.name]
    products = [n for n in dense if n.op_type in ("Gemm", "MatMul")]
    assert len(products) == KINDS[made.family].said.count("Dense")
    for node in products:
        assert weights[node.input[1]] == onnx.TensorProto.FLOAT
    # no node after the pooling casts back to fp16
    position = {name: i for i, n in enumerate(graph.node) for name in n.output}
    tail = min(i for i, n in enumerate(graph.node) if n.op_type == "Div" and "/tail" in n.name)
    narrowed = [
        n.name
        for n in graph.node
        if n.op_type == "Cast"
        and n.attribute[0].i == onnx.TensorProto.FLOAT16
        and position.get(n.input[0], -1) >= tail
    ]
    assert narrowed == []


def test_int8_keeps_wide_dense_modules_in_fp32(
    shallow_folder: Path, sentences: list[str], tmp_path: Path
) -> None:
    torch.manual_seed(1)
    modules = [Transformer(str(shallow_folder)), Pooling(32), Dense(32, 2304), Dense(2304, 16)]
    folder = str(tmp_path / "wide")
    SentenceTransformer(modules=modules, device="cpu").save_pretrained(
        folder, create_model_card=False
    )
    source = open_source(folder, max_tokens=64)
    write_graph(source, tmp_path / "fp32.onnx")
    tokenizer = Tokenizer.from_file(str(shallow_folder / "tokenizer.json"))
    inputs = batches(tokenizer, sentences[:16], max_tokens=64, pad_token_id=0, size=1)
    kernels = write_int8(quantise(tmp_path / "fp32.onnx", inputs), tmp_path)
    _, engine = open_engine("int8", tmp_path / "model.int8.xml", threads=1)
    reference = reference_vectors(source, sentences[:16], batch_size=1).numpy()
    assert cosines(np.concatenate([engine(i) for i in inputs]), reference).min() > 0.98
    assert kernels["MatMul float"] >= 2
    described = (tmp_path / "model.int8.xml").read_text()
    # 73,728 values, which other parts would store as fp16
    assert described.count('element_type="f32" shape="2304, 32"') == 1
