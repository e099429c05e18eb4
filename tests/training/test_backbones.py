"""Encoders of transformers without extension."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from transformers import (
    BigBirdConfig,
    BigBirdModel,
    LongformerConfig,
    LongformerModel,
    ModernBertConfig,
    ModernBertModel,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaModel,
)

from tests.training.conftest import MakeSettings, make_tokenizer, save_tiny_model
from training.backbones.encoder import Encoder, open_start, pool
from training.errors import SettingsError
from training.settings import BackboneSettings
from training.trainer.opening import open_teacher

SIZES: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "vocab_size": 100,
    "pad_token_id": 0,
}
MODELS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "longformer": (
        LongformerModel,
        LongformerConfig,
        {"attention_window": [8, 8], "max_position_embeddings": 130},
    ),
    "bigbird": (
        BigBirdModel,
        BigBirdConfig,
        {"max_position_embeddings": 128, "attention_type": "original_full"},
    ),
    "modernbert": (
        ModernBertModel,
        ModernBertConfig,
        {"max_position_embeddings": 128, "local_attention": 8},
    ),
    "roberta": (RobertaModel, RobertaConfig, {"max_position_embeddings": 130}),
}


def save(folder: Path, kind: str, tokenizer: PreTrainedTokenizerFast) -> str:
    torch.manual_seed(0)
    model, config, options = MODELS[kind]
    model(config(**SIZES, **options)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize("kind", MODELS)
def test_native_folder_loads_and_learns(
    tmp_path: Path, tokenizer: PreTrainedTokenizerFast, kind: str
) -> None:
    path = save(tmp_path, kind, tokenizer)
    start = open_start(BackboneSettings(path=path, max_tokens=64))
    ids = torch.randint(5, 90, (2, 40))
    mask = torch.ones_like(ids)
    mask[1, 25:] = 0
    _, vectors = start.encoder(ids, mask)
    assert vectors.shape == (2, 16)
    vectors.sum().backward()
    grads = [p.grad for p in start.encoder.parameters() if p.grad is not None]
    assert all(torch.isfinite(g).all() for g in grads)
    assert len(grads) > 10


def test_pooling_ignores_padding() -> None:
    states = torch.tensor([[[1.0, 2.0], [3.0, 4.0], [99.0, 99.0]]])
    mask = torch.tensor([[1, 1, 0]])
    assert pool(states, mask, "mean").tolist() == [[2.0, 3.0]]
    assert pool(states, mask, "cls").tolist() == [[1.0, 2.0]]


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        (None, "mean"),
        ({"pooling_mode_cls_token": True}, "cls"),
        ({"pooling_mode": "cls"}, "cls"),
        ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}, "mean"),
    ],
)
def test_pooling_follows_the_folder(
    tmp_path: Path, tokenizer: PreTrainedTokenizerFast, held: dict[str, Any] | None, expected: str
) -> None:
    path = save(tmp_path, "roberta", tokenizer)
    if held is not None:
        (tmp_path / "1_Pooling").mkdir()
        (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps(held), encoding="utf-8")
    assert open_start(BackboneSettings(path=path, max_tokens=64)).encoder.pooling == expected
    forced = BackboneSettings(path=path, max_tokens=64, pooling="cls")
    assert open_start(forced).encoder.pooling == "cls"


def test_dropout_settings_reach_the_model(
    tmp_path: Path, tokenizer: PreTrainedTokenizerFast
) -> None:
    path = save(tmp_path, "roberta", tokenizer)
    settings = BackboneSettings(path=path, max_tokens=64, dropout=0.0, attention_dropout=0.3)
    config = open_start(settings).encoder.backbone.config
    assert (config.hidden_dropout_prob, config.attention_probs_dropout_prob) == (0.0, 0.3)


def test_unusable_start_weights_are_named(
    tmp_path: Path, tokenizer: PreTrainedTokenizerFast
) -> None:
    with pytest.raises(SettingsError, match=r"backbone.path '.*absent'"):
        open_start(BackboneSettings(path=str(tmp_path / "absent")))
    path = save(tmp_path / "model", "roberta", tokenizer)
    with pytest.raises(SettingsError, match="300 is more than the 129 positions"):
        open_start(BackboneSettings(path=path, max_tokens=300))


def test_a_teacher_must_share_vocabulary_and_width(
    make_settings: MakeSettings, tmp_path: Path
) -> None:
    def opened(path: str | Path) -> Encoder | None:
        settings = make_settings(objective={"teacher": str(path)})
        return open_teacher(settings, open_start(settings.backbone))

    wide = save_tiny_model(tmp_path / "wide", make_tokenizer(), seed=0, width=64)
    with pytest.raises(
        SettingsError, match=r"objective.teacher '.*wide': it has 64 dimensions.* has 32"
    ):
        opened(wide)
    other = make_tokenizer()
    other.add_tokens(["novel"])
    with pytest.raises(SettingsError, match=r"objective.teacher '.*other': its vocabulary"):
        opened(save_tiny_model(tmp_path / "other", other, seed=0, width=32))
    with pytest.raises(ValidationError, match="mlm makes only one"):
        make_settings(objective={"view": "mlm", "teacher": str(wide)})
    same = opened(save_tiny_model(tmp_path / "same", make_tokenizer(), seed=1, width=32))
    assert same is not None
    assert not same.training
    assert not any(weight.requires_grad for weight in same.parameters())
