"""Tiny random encoders of every supported family, and the vectors of bundles."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from tokenizers import Tokenizer

from docsplit.bundles.format import Bundle
from docsplit.bundles.manifest import PrecisionName
from export.engines import Encode, open_engine, openvino_engine
from export.texts import batches
from tests.export.conftest import SIZES

WINDOW = 96
LOCAL = 16  # ModernBERT's local window; the longest text is six times longer
MODERN: dict[str, Any] = {
    **SIZES,
    # the first reads all tokens, the second a local window
    "num_hidden_layers": 2,
    "global_attn_every_n_layers": 2,
    "local_attention": LOCAL,
    "max_position_embeddings": WINDOW,
    "pad_token_id": 0,
    "bos_token_id": 2,
    "cls_token_id": 2,
    "eos_token_id": 3,
    "sep_token_id": 3,
}
# RoBERTa and similar models count positions from padding_idx + 1 = 2
OFFSET: dict[str, Any] = {
    **SIZES,
    "max_position_embeddings": WINDOW + 2,
    "pad_token_id": 1,
    "bos_token_id": 0,
    "eos_token_id": 2,
}


def tiny_encoder(family: str, vocabulary: int, layers: int = 2) -> transformers.PreTrainedModel:
    """A random encoder of ``family`` for windows of ``WINDOW`` tokens."""
    torch.manual_seed(0)
    rows: dict[str, Any] = {"vocab_size": vocabulary}
    shape: dict[str, Any] = {**rows, "num_hidden_layers": layers}
    plain = {**SIZES, **shape, "max_position_embeddings": WINDOW}
    offset = {**OFFSET, **shape, "type_vocab_size": 1}
    match family:
        case "albert":
            return transformers.AlbertModel(transformers.AlbertConfig(**plain, embedding_size=16))
        case "bert":
            return transformers.BertModel(transformers.BertConfig(**plain))
        case "camembert":
            return transformers.CamembertModel(transformers.CamembertConfig(**offset))
        case "deberta-v2":
            # as in deberta-v3: relative positions, shared with the content's projections
            relative: dict[str, Any] = {"relative_attention": True, "position_buckets": 16}
            relative |= {"pos_att_type": ["p2c", "c2p"], "share_att_key": True}
            relative |= {"norm_rel_ebd": "layer_norm", "position_biased_input": False}
            relative |= {"type_vocab_size": 0}
            return transformers.DebertaV2Model(transformers.DebertaV2Config(**plain, **relative))
        case "distilbert":
            sizes: dict[str, Any] = {"dim": 32, "n_layers": layers, "n_heads": 4, "hidden_dim": 64}
            rest: dict[str, Any] = {"max_position_embeddings": WINDOW, "initializer_range": 0.1}
            config = transformers.DistilBertConfig(**sizes, **rest, **rows)
            return transformers.DistilBertModel(config)
        case "electra":
            # embeddings are narrower than layers, as in electra-small
            return transformers.ElectraModel(transformers.ElectraConfig(**plain, embedding_size=16))
        case "modernbert":
            return transformers.ModernBertModel(transformers.ModernBertConfig(**MODERN | rows))
        case "mpnet":
            return transformers.MPNetModel(transformers.MPNetConfig(**OFFSET | shape))
        case "mistral" | "qwen2" | "qwen3":
            decoder = {**plain, "num_key_value_heads": 2, "head_dim": 8, "pad_token_id": 0}
            if family == "qwen2":
                del decoder["head_dim"]
            kinds = {"mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3"}
            made = getattr(transformers, f"{kinds[family]}Config")(**decoder)
            encoder: transformers.PreTrainedModel
            encoder = getattr(transformers, f"{kinds[family]}Model")(made)
            return encoder
        case "nomic_bert":
            return transformers.NomicBertModel(transformers.NomicBertConfig(**plain))
        case "roberta":
            return transformers.RobertaModel(transformers.RobertaConfig(**offset))
        case "xlm-roberta":
            return transformers.XLMRobertaModel(transformers.XLMRobertaConfig(**offset))
    raise AssertionError(family)


def save_encoder(family: str, bert: Path, roberta: Path, folder: Path, layers: int = 2) -> Path:
    """A transformers folder with the tokenizer of ``bert`` or, if padding is 1, ``roberta``."""
    offset = family in ("camembert", "mpnet", "roberta", "xlm-roberta")
    shutil.copytree(roberta if offset else bert, folder)
    rows = Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab_size()
    # Qwen2's own tokenizer class adds a token
    tiny_encoder(family, rows + (family == "qwen2"), layers).save_pretrained(folder)
    return folder


def opened(bundle: Bundle, precision: PrecisionName = "fp16", runtime: str = "onnx") -> Encode:
    """The engine of a graph. OpenVINO runs both graphs, the fp16 graph in f32, so the result does
    not depend on the processor."""
    graph = bundle.graph(precision)
    if runtime == "openvino" and precision == "fp16":
        _, engine = openvino_engine(graph, threads=1, floating="f32")
    else:
        _, engine = open_engine(precision, graph, threads=1)
    return engine


def encode(
    bundle: Bundle,
    texts: list[str],
    *,
    size: int,
    precision: PrecisionName = "fp16",
    runtime: str = "onnx",
    engine: Encode | None = None,
) -> np.ndarray:
    """The bundle's vectors, ``size`` texts per batch; see ``opened``."""
    made = bundle.manifest
    inputs = batches(
        Tokenizer.from_file(str(bundle.path("tokenizer.json"))),
        texts,
        max_tokens=made.max_tokens,
        pad_token_id=made.pad_token_id,
        size=size,
    )
    engine = engine or opened(bundle, precision, runtime)
    return np.concatenate([engine(batch) for batch in inputs])


def cosines(vectors: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Cosines of unit vectors, row by row."""
    return (vectors * others).sum(axis=1)
