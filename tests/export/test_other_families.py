"""Encoders beyond the BERT family, and decoders that embed with their last token."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from tokenizers import Tokenizer, processors

from docsplit.bundles.manifest import Pooling as PoolingName
from export.engines import Encode, open_engine, openvino_engine
from export.fp16 import FILE, fuse, write_fp16
from export.graph import write_graph
from export.source import Source, open_source, reference_vectors
from export.texts import batches
from tests.conftest import NIGHTLY
from tests.export.checkpoints import WINDOW, cosines, save_encoder

LAYERS = 2 if NIGHTLY else 1
# the pooling of each, and another one that gives other vectors
KINDS: dict[str, tuple[PoolingName, PoolingName]] = {
    "albert": ("mean", "cls"),
    "deberta-v2": ("cls", "mean"),
    "mistral": ("lasttoken", "mean"),
    "nomic_bert": ("mean", "cls"),
    "qwen2": ("lasttoken", "mean"),
    "qwen3": ("lasttoken", "cls"),
}


def save(family: str, bert: Path, roberta: Path, root: Path, pooling: str) -> Path:
    """A sentence-transformers folder. A decoder's tokenizer ends each text with a token."""
    encoder = save_encoder(family, bert, roberta, root / "encoder", layers=LAYERS)
    if pooling == "lasttoken":
        tokenizer = Tokenizer.from_file(str(encoder / "tokenizer.json"))
        tokenizer.post_processor = processors.TemplateProcessing(
            single="$A [SEP]", special_tokens=[("[SEP]", 3)]
        )
        tokenizer.save(str(encoder / "tokenizer.json"))
    modules = [Transformer(str(encoder), max_seq_length=WINDOW), Pooling(32, pooling)]
    folder = root / "checkpoint"
    SentenceTransformer(modules=modules, device="cpu").save_pretrained(
        str(folder), create_model_card=False
    )
    return folder


def encode(source: Source, engine: Encode, texts: list[str], size: int) -> np.ndarray:
    tokenizer = Tokenizer.from_str(source.tokenizer.backend_tokenizer.to_str())
    inputs = batches(tokenizer, texts, max_tokens=WINDOW, pad_token_id=0, size=size)
    return np.concatenate([engine(batch) for batch in inputs])


# Mistral's and Qwen2's layers have the parts of Qwen3's
BY_DAY = [family for family in KINDS if NIGHTLY or family not in ("mistral", "qwen2")]


@pytest.mark.parametrize("family", BY_DAY)
def test_the_graphs_of_each_family_agree_with_their_source(
    family: str, bert_folder: Path, roberta_folder: Path, sentences: list[str], tmp_path: Path
) -> None:
    pooling, other = KINDS[family]
    sentences = sentences[:16]
    folder = save(family, bert_folder, roberta_folder, tmp_path, pooling)
    # the tokenizer of Qwen2's class, which is not that of the file
    source = open_source(str(folder), tokenizer="class")
    assert source.pooling == pooling
    write_graph(source, tmp_path / "fp32.onnx")
    calibration = batches(
        Tokenizer.from_str(source.tokenizer.backend_tokenizer.to_str()),
        sentences,
        max_tokens=WINDOW,
        pad_token_id=0,
        size=8,
    )
    fused = fuse(source, tmp_path / "fp32.onnx", calibration)
    write_fp16(fused, tmp_path)
    # one at a time, the source has no padding
    reference = reference_vectors(source, sentences, batch_size=1).numpy()
    for name, runtime, least in (
        ("fp32.onnx", "onnx", 0.999999),
        (FILE, "onnx", 0.9999),
        (FILE, "openvino", 0.9999),
    ):
        if runtime == "openvino":
            _, engine = openvino_engine(tmp_path / name, threads=1, floating="f32")
        else:
            _, engine = open_engine("fp16", tmp_path / name, threads=1)
        for size in (1, len(sentences)) if runtime == "onnx" else (5,):
            vectors = encode(source, engine, sentences, size)
            assert cosines(vectors, reference).min() > least, (name, runtime, size)
    transformer, _ = source.model
    foreign = SentenceTransformer(modules=[transformer, Pooling(32, other)], device="cpu")
    vectors = foreign.encode(sentences, normalize_embeddings=True, show_progress_bar=False)
    assert cosines(np.asarray(vectors), reference).min() < 0.99


def test_a_decoder_reads_the_last_token_before_the_padding(
    bert_folder: Path, roberta_folder: Path, tmp_path: Path
) -> None:
    source = open_source(str(save("qwen3", bert_folder, roberta_folder, tmp_path, "lasttoken")))
    with torch.no_grad():
        write_graph(source, tmp_path / "fp32.onnx")
    _, engine = open_engine("fp16", tmp_path / "fp32.onnx", threads=1)
    ids = np.array([[7, 8, 9, 3]])
    single = engine({"input_ids": ids, "attention_mask": np.ones_like(ids)})
    padded = np.array([[7, 8, 9, 3, 0, 0]])
    mask = np.array([[1, 1, 1, 1, 0, 0]])
    assert cosines(single, engine({"input_ids": padded, "attention_mask": mask})).min() > 0.999999
    # the control: another last token
    other = np.array([[7, 8, 9, 4]])
    assert (
        cosines(single, engine({"input_ids": other, "attention_mask": np.ones_like(ids)})) < 0.999
    )
