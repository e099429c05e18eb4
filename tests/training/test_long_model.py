"""Compare the extended model with the short one and with dense attention."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from sentence_transformers import SentenceTransformer
from transformers import (
    BertConfig,
    BertModel,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaModel,
)

from training.encoder import Encoder, extend, open_start, tile_positions
from training.errors import SettingsError
from training.modeling_long_bert import LongBertModel, blocked_attention
from training.settings import BackboneSettings
from training.trainer.output import save_model

# float32 rounding in two layers; the states are of order one.
TOLERANCE = 1e-5


def short_model(kind: str) -> PreTrainedModel:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {
        "vocab_size": 100,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 48,
        "initializer_range": 0.2,
    }
    if kind == "roberta":
        config = RobertaConfig(**sizes, max_position_embeddings=66, pad_token_id=1)
        return RobertaModel(config).eval()
    return BertModel(BertConfig(**sizes, max_position_embeddings=64)).eval()


def batch(tokens: int, lengths: list[int], pad: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(5, 100, (len(lengths), tokens), generator=generator)
    mask = (torch.arange(tokens)[None, :] < torch.tensor(lengths)[:, None]).long()
    return torch.where(mask == 1, ids, pad), mask


@pytest.mark.parametrize("window", [4, 16, 50])
@pytest.mark.parametrize("tokens", [17, 64, 131])
def test_blocked_attention_equals_dense_attention_with_a_band(window: int, tokens: int) -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 4, tokens, 8)
    valid = torch.ones(2, tokens, dtype=torch.bool)
    valid[1, tokens // 2 :] = False
    place = torch.arange(tokens)
    band = (place[:, None] - place).abs() <= window
    band |= (place[:, None] == 0) | (place == 0)
    expected = F.scaled_dot_product_attention(q, k, v, band & valid[:, None, None])
    found = blocked_attention(q, k, v, valid, window, 0.0)
    torch.testing.assert_close(found[0], expected[0], atol=TOLERANCE, rtol=0)
    half = tokens // 2
    torch.testing.assert_close(found[1, :, :half], expected[1, :, :half], atol=TOLERANCE, rtol=0)
    if tokens > 2 * window:
        # Control: without the global first token the result differs.
        local = (place[:, None] - place).abs() <= window
        other = F.scaled_dot_product_attention(q, k, v, local & valid[:, None, None])
        assert (found[0] - other[0]).abs().max() > 0.01


@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_long_agrees_with_short_on_short_texts(kind: str) -> None:
    short = short_model(kind)
    long = extend(short, 256).eval()
    pad = int(short.config.pad_token_id)
    ids, mask = batch(64, [64, 40, 2], pad)
    # Padding beyond the window makes the model use blocks and not the dense shortcut.
    wide, wide_mask = F.pad(ids, (0, 100), value=pad), F.pad(mask, (0, 100))
    with torch.no_grad():
        expected = short(ids, attention_mask=mask).last_hidden_state
        for found in (long(ids, mask)[0], long(wide, wide_mask)[0][:, :64]):
            assert ((found - expected).abs() * mask[:, :, None]).max() < TOLERANCE
        # Control: a window narrower than the text sees less than the short model.
        narrow = extend(short, 256, window=8).eval()(ids, mask)[0]
        assert ((narrow - expected).abs() * mask[:, :, None]).max() > 100 * TOLERANCE


def test_long_reads_and_learns_from_long_texts() -> None:
    long = extend(short_model("bert"), 256, window=16).train()
    ids, mask = batch(256, [256, 180], 0)
    states = long(ids, mask).last_hidden_state
    states[:, 200].sum().backward()
    table = long.embeddings.position_embeddings.weight.grad
    assert table is not None
    assert table[0].abs().sum() > 0  # the global first token, far outside the window
    assert table[200 - 2 * 16 - 1].abs().sum() < table[200].abs().sum()
    for parameter in long.parameters():
        assert parameter.grad is None or torch.isfinite(parameter.grad).all()


def test_positions_are_copied_repeatedly() -> None:
    table = torch.arange(5.0)[:, None]
    assert tile_positions(table, 2, 8).flatten().tolist() == [0, 1, 2, 3, 4, 2, 3, 4, 2, 3]


def test_other_models_are_not_extended() -> None:
    with pytest.raises(SettingsError, match=r"64 must be more than the 64 tokens"):
        extend(short_model("bert"), 64)
    with pytest.raises(SettingsError, match="cannot extend a docsplit_long_bert model"):
        extend(extend(short_model("bert"), 128), 256)


def test_saved_folder_opens_in_sentence_transformers_and_trains_on(
    tiny_model: Path, tmp_path: Path
) -> None:
    settings = BackboneSettings(
        path=str(tiny_model), extend_to=160, attention_window=16, max_tokens=160
    )
    start = open_start(settings)
    start.encoder.eval()
    folder = tmp_path / "long"
    save_model(start.encoder, start.tokenizer, 160, folder)
    assert (folder / "modeling_long_bert.py").is_file()
    text = "bal dem kir kol dus " * 20
    with warnings.catch_warnings():
        # This test imports the class from the folder although another one is registered.
        warnings.simplefilter("ignore")
        opened = SentenceTransformer(str(folder), trust_remote_code=True, device="cpu")
        found = opened.encode([text, "bal dem"])
    backend = start.tokenizer.backend_tokenizer
    for line, vector in zip([text, "bal dem"], found, strict=True):
        ids = torch.tensor([backend.encode(line).ids])
        with torch.no_grad():
            expected = F.normalize(start.encoder(ids, torch.ones_like(ids))[1], dim=-1)[0]
        np.testing.assert_allclose(vector, expected.numpy(), atol=TOLERANCE)
    again = open_start(BackboneSettings(path=str(folder), max_tokens=160))
    assert type(again.encoder.backbone).__name__ == LongBertModel.__name__
    with pytest.raises(SettingsError, match="161 is more than the 160 positions"):
        open_start(BackboneSettings(path=str(folder), max_tokens=161))


def test_exports_with_dynamic_batch_and_length(
    tmp_path: Path, tokenizer: PreTrainedTokenizerFast
) -> None:
    """Checks the properties that docsplit-export needs."""
    import onnxruntime

    long = extend(short_model("bert"), 256, window=16).eval()
    encoder = Encoder(long, "mean").eval()
    path = tmp_path / "long.onnx"
    ids, mask = batch(40, [40, 30], 0)
    axes = {0: "batch", 1: "tokens"}
    with warnings.catch_warnings():
        # torch deprecates the tracing exporter; this test needs only the graph.
        warnings.simplefilter("ignore")
        torch.onnx.export(
            encoder,
            (ids, mask),
            str(path),
            input_names=["input_ids", "attention_mask"],
            output_names=["states", "pooled"],
            dynamic_axes={"input_ids": axes, "attention_mask": axes},
            dynamo=False,
            opset_version=17,
        )
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    for tokens, lengths in ((7, [7]), (40, [40, 11]), (163, [163, 100, 1])):
        ids, mask = batch(tokens, lengths, 0)
        found = session.run(["pooled"], {"input_ids": ids.numpy(), "attention_mask": mask.numpy()})[
            0
        ]
        with torch.no_grad():
            expected = encoder(ids, mask)[1].numpy()
        np.testing.assert_allclose(found, expected, atol=TOLERANCE)
