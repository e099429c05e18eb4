"""Static embeddings, as sentence-transformers and model2vec store them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, StaticEmbedding
from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding
from tokenizers import Tokenizer
from torch import nn
from transformers import PreTrainedTokenizerFast

from docsplit.bundles.format import load
from export.engines import open_engine, source_engine
from export.errors import ExportError
from export.pipeline import Request
from export.pipeline import export as run
from export.source import open_source, reference_vectors
from tests.export.checkpoints import cosines, encode

DIMENSIONS = 24


@pytest.fixture(scope="module")
def rows(bert_folder: Path) -> torch.Tensor:
    size = Tokenizer.from_file(str(bert_folder / "tokenizer.json")).get_vocab_size()
    return torch.randn(size, DIMENSIONS, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def folder(bert_folder: Path, rows: torch.Tensor, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of sentence-transformers with a Dense module and without a Normalize."""
    path = tmp_path_factory.mktemp("static") / "tiny-static"
    torch.manual_seed(0)
    tokenizer = Tokenizer.from_file(str(bert_folder / "tokenizer.json"))
    modules: list[nn.Module] = [StaticEmbedding(tokenizer, rows), Dense(DIMENSIONS, 16)]
    model = SentenceTransformer(modules=modules, device="cpu", prompts={"query": "query: "})
    model.save_pretrained(str(path), create_model_card=False)
    return path


def model2vec_folder(bert_folder: Path, rows: torch.Tensor, path: Path) -> Path:
    """What ``StaticModel.save_pretrained`` of model2vec writes: rows shared by several tokens, and
    a weight of each token."""
    path.mkdir()
    tokens = torch.arange(len(rows))
    tensors = {
        "embeddings": rows[: len(rows) // 2].half(),
        "mapping": tokens // 2,
        "weights": 1 / (1 + tokens.double()),
    }
    save_file(tensors, path / "model.safetensors")
    (path / "tokenizer.json").write_text((bert_folder / "tokenizer.json").read_text())
    (path / "config.json").write_text('{"model_type": "model2vec", "normalize": true}')
    kinds = (("StaticEmbedding", "."), ("Normalize", "1_Normalize"))
    listed = [
        {"idx": i, "name": str(i), "path": at, "type": f"sentence_transformers.models.{kind}"}
        for i, (kind, at) in enumerate(kinds)
    ]
    (path / "modules.json").write_text(json.dumps(listed))
    return path


def order(folder: Path, dest: Path, text_file: Path) -> Request:
    return Request(
        source=str(folder), dest=dest, licence="MIT", calibration=text_file, paragraphs=200
    )


def test_a_bundle_agrees_with_sentence_transformers(
    folder: Path, text_file: Path, sentences: list[str], tmp_path: Path
) -> None:
    made: Any = run(order(folder, tmp_path / "bundle", text_file))
    assert (made.dimensions, made.pooling, made.max_tokens) == (16, "mean", 8_192)
    assert made.prompts == {"query": "query: "}
    assert list(made.precisions) == ["fp16"]
    bundle = load(tmp_path / "bundle")
    tokenizer = Tokenizer.from_file(str(bundle.path("tokenizer.json")))
    assert tokenizer.encode("text").ids == tokenizer.encode("text", add_special_tokens=False).ids
    own = SentenceTransformer(str(folder), device="cpu")
    texts = [text for text in sentences if text.strip()]
    reference = own.encode(texts, normalize_embeddings=True)
    for size in (1, len(texts)):
        vectors = encode(bundle, texts, size=size)
        assert cosines(vectors, reference).min() > 0.9999
    # the control: without the mask, padding counts
    _, engine = open_engine("fp16", bundle.graph("fp16"), threads=1)
    ids = np.array([tokenizer.encode(texts[1]).ids])
    padded = np.concatenate([ids, np.zeros((1, 40), np.int64)], axis=1)
    [unmasked] = engine({"input_ids": padded, "attention_mask": np.ones_like(padded)})
    assert unmasked @ reference[1] < 0.99


def test_a_folder_of_model2vec_exports(
    bert_folder: Path, rows: torch.Tensor, text_file: Path, sentences: list[str], tmp_path: Path
) -> None:
    folder = model2vec_folder(bert_folder, rows, tmp_path / "potion")
    run(order(folder, tmp_path / "bundle", text_file))
    halved = rows[: len(rows) // 2].half().float()[torch.arange(len(rows)) // 2]
    weighted = halved / (1 + torch.arange(len(rows)))[:, None]
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    ids = [tokenizer.encode(text, add_special_tokens=False).ids for text in sentences[1:20]]
    means = torch.stack([weighted[torch.tensor(one)].mean(0) for one in ids])
    expected = nn.functional.normalize(means).numpy()
    vectors = encode(load(tmp_path / "bundle"), sentences[1:20], size=8)
    assert cosines(vectors, expected).min() > 0.9999


def test_a_window_cuts_the_reference_too(folder: Path, sentences: list[str]) -> None:
    long = max(sentences, key=len)
    short = open_source(str(folder), max_tokens=8)
    ids = np.array([short.tokenizer(long)["input_ids"][:8]])
    [cut] = source_engine(short)({"input_ids": ids, "attention_mask": np.ones_like(ids)})
    [vector] = reference_vectors(short, [long]).numpy()
    assert vector @ cut > 0.9999
    [whole] = reference_vectors(open_source(str(folder)), [long]).numpy()
    assert vector @ whole < 0.99


def test_products_of_integers_are_refused(folder: Path, text_file: Path, tmp_path: Path) -> None:
    request = order(folder, tmp_path / "bundle", text_file)
    wanted = Request(**{**vars(request), "precisions": ("fp16", "int8")})
    with pytest.raises(ExportError, match="static embeddings export only to fp16"):
        run(wanted)


def test_more_tokens_than_rows_are_refused(
    bert_folder: Path, rows: torch.Tensor, tmp_path: Path
) -> None:
    tokenizer = Tokenizer.from_file(str(bert_folder / "tokenizer.json"))
    model = SentenceTransformer(modules=[StaticEmbedding(tokenizer, rows[:-5]), Normalize()])
    model.save_pretrained(str(tmp_path / "short"), create_model_card=False)
    with pytest.raises(ExportError, match=r"the tokenizer has \d+ tokens, the model \d+ embed"):
        open_source(str(tmp_path / "short"))


def test_sparse_static_embeddings_are_refused_by_name(bert_folder: Path, tmp_path: Path) -> None:
    tokenizer: Any = PreTrainedTokenizerFast(tokenizer_file=str(bert_folder / "tokenizer.json"))
    model = SentenceTransformer(modules=[SparseStaticEmbedding(tokenizer)], device="cpu")
    model.save_pretrained(str(tmp_path / "sparse"), create_model_card=False)
    with pytest.raises(ExportError, match="unsupported module SparseStaticEmbedding"):
        open_source(str(tmp_path / "sparse"))
