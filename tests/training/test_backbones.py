"""Encoders of transformers without extension."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize
from transformers import (
    AutoConfig,
    AutoModel,
    AutoTokenizer,
    BigBirdConfig,
    BigBirdModel,
    ElectraConfig,
    ElectraModel,
    LongformerConfig,
    LongformerModel,
    ModernBertConfig,
    ModernBertModel,
    MPNetConfig,
    MPNetModel,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaModel,
)

from tests.training.conftest import PIECES, MakeSettings, make_tokenizer, save_tiny_model
from training.encoder import Teacher, open_start, open_teachers, pool
from training.errors import SettingsError
from training.settings import BackboneSettings, Settings
from training.trainer.loop import TrainingRun

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
    "mpnet": (MPNetModel, MPNetConfig, {"max_position_embeddings": 130}),
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
        ({"pooling_mode_mean_sqrt_len_tokens": True}, "mean"),
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


def test_pooling_follows_the_hub(
    tmp_path: Path, tokenizer: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch
) -> None:
    revision = "a" * 40
    held = tmp_path / "models--org--model"
    snapshot = held / "snapshots" / revision
    save(snapshot, "roberta", tokenizer)
    (snapshot / "1_Pooling").mkdir()
    written = json.dumps({"pooling_mode": "cls"})
    (snapshot / "1_Pooling" / "config.json").write_text(written, encoding="utf-8")
    (held / "refs").mkdir()
    (held / "refs" / "main").write_text(revision, encoding="utf-8")
    for module in ("huggingface_hub.constants", "transformers.utils.hub"):
        name = "HF_HUB_CACHE" if "constants" in module else "TRANSFORMERS_CACHE"
        monkeypatch.setattr(f"{module}.{name}", str(tmp_path), raising=False)
    # without it each file is asked for five times where no hub can be reached
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    opened = open_start(BackboneSettings(path="org/model", max_tokens=64))
    assert opened.encoder.pooling == "cls"


def test_modules_after_the_pooling_are_not_left_out_silently(
    make_settings: MakeSettings, tiny_model: Path, tmp_path: Path
) -> None:
    """A map after the pooling is part of the encoder, as in the result of ``whiten``."""
    longer = SentenceTransformer(str(tiny_model), device="cpu")
    longer.append(Dense(32, 16, bias=False, activation_function=torch.nn.Identity()))
    longer.append(Normalize())
    longer.save_pretrained(str(tmp_path / "mapped"), create_model_card=False)
    path = str(tmp_path / "mapped")
    with pytest.raises(SettingsError, match="mapped' computes its vectors by Dense too"):
        open_start(BackboneSettings(path=path, max_tokens=64))
    chosen = BackboneSettings(path=path, max_tokens=64, pooling="mean")
    assert open_start(chosen).encoder.backbone.config.hidden_size == 32
    settings = make_settings(objective={"teacher": path})
    start = open_start(settings.backbone)
    # backbone.pooling is not a teacher's
    with pytest.raises(
        SettingsError,
        match=r"^objective.teacher '.*mapped' computes its vectors by Dense too, which .* out$",
    ):
        open_teachers(settings, start, torch.device("cpu"))


@pytest.mark.parametrize(
    ("held", "named"),
    [
        ({"pooling_mode_max_tokens": True}, "max"),
        ({"pooling_mode": "lasttoken"}, "lasttoken"),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}, r"cls \+ mean"),
    ],
)
def test_another_pooling_is_refused(
    tmp_path: Path, tokenizer: PreTrainedTokenizerFast, held: dict[str, Any], named: str
) -> None:
    path = save(tmp_path, "roberta", tokenizer)
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps(held), encoding="utf-8")
    with pytest.raises(SettingsError, match=f"pools by {named}; the training pools by mean or cls"):
        open_start(BackboneSettings(path=path, max_tokens=64))
    chosen = BackboneSettings(path=path, max_tokens=64, pooling="mean")
    assert open_start(chosen).encoder.pooling == "mean"


def test_dropout_settings_reach_the_model(
    tmp_path: Path, tokenizer: PreTrainedTokenizerFast
) -> None:
    path = save(tmp_path, "roberta", tokenizer)
    settings = BackboneSettings(path=path, max_tokens=64, dropout=0.0, attention_dropout=0.3)
    config = open_start(settings).encoder.backbone.config
    assert (config.hidden_dropout_prob, config.attention_probs_dropout_prob) == (0.0, 0.3)


def test_only_attention_weights_lose_their_dropout_by_default(
    tmp_path: Path, tokenizer: PreTrainedTokenizerFast
) -> None:
    path = save(tmp_path, "roberta", tokenizer)
    config = open_start(BackboneSettings(path=path, max_tokens=64)).encoder.backbone.config
    assert (config.hidden_dropout_prob, config.attention_probs_dropout_prob) == (0.1, 0.0)
    settings = BackboneSettings(path=path, max_tokens=64, attention_dropout=None)
    config = open_start(settings).encoder.backbone.config
    assert config.attention_probs_dropout_prob == 0.1


def test_only_a_given_dropout_is_refused_by_a_model_without_it(
    tmp_path: Path, tokenizer: PreTrainedTokenizerFast
) -> None:
    AutoModel.from_config(AutoConfig.for_model("fnet", **SIZES)).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    assert open_start(BackboneSettings(path=str(tmp_path), max_tokens=64)).encoder
    settings = BackboneSettings(path=str(tmp_path), max_tokens=64, attention_dropout=0.0)
    with pytest.raises(SettingsError, match=r"backbone\.attention_dropout: a fnet model has no"):
        open_start(settings)


def test_a_model_with_narrow_token_vectors_predicts_no_words(
    make_settings: MakeSettings, tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    """Small ELECTRA and ALBERT models map their token vectors to wider states."""
    config = ElectraConfig(**SIZES | {"vocab_size": len(tokenizer)}, embedding_size=8)
    ElectraModel(config).save_pretrained(tmp_path / "electra")
    tokenizer.save_pretrained(tmp_path / "electra")
    start = {"path": str(tmp_path / "electra")}
    with pytest.raises(SettingsError, match=r"mlm_weight: .* have 8 dimensions, .* have 16; set"):
        TrainingRun(make_settings(backbone=start))
    settings = make_settings(backbone=start, objective={"mlm_weight": 0.0})
    assert TrainingRun(settings).run().finished


def test_a_teacher_that_does_not_open_is_named(make_settings: MakeSettings, tmp_path: Path) -> None:
    settings = make_settings(objective={"teacher": str(tmp_path / "absent")})
    start = open_start(settings.backbone)
    with pytest.raises(SettingsError, match=r"objective.teacher '.*absent': no such folder"):
        open_teachers(settings, start, torch.device("cpu"))


def test_unusable_start_weights_are_named(
    tmp_path: Path, tokenizer: PreTrainedTokenizerFast
) -> None:
    with pytest.raises(SettingsError, match=r"backbone.path '.*absent': no such folder"):
        open_start(BackboneSettings(path=str(tmp_path / "absent")))
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    (bundle / "bundle.json").write_text("{}")
    with pytest.raises(SettingsError, match=r"backbone.path '.*bundle': a bundle; give the"):
        open_start(BackboneSettings(path=str(bundle)))
    path = save(tmp_path / "model", "roberta", tokenizer)
    with pytest.raises(SettingsError, match="300 is more than the 129 positions"):
        open_start(BackboneSettings(path=path, max_tokens=300))


@pytest.mark.parametrize(("kind", "longest"), [("roberta", 129), ("mpnet", 128)])
def test_the_longest_window_is_one_that_the_model_reads(
    tmp_path: Path, tokenizer: PreTrainedTokenizerFast, kind: str, longest: int
) -> None:
    path = save(tmp_path, kind, tokenizer)
    encoder = open_start(BackboneSettings(path=path, max_tokens=longest)).encoder
    ids = torch.full((1, longest), 7)
    assert encoder(ids, torch.ones_like(ids))[1].isfinite().all()
    with pytest.raises(SettingsError, match=f"{longest + 1} is more than the {longest} positions"):
        open_start(BackboneSettings(path=path, max_tokens=longest + 1))


def opened_teacher(settings: Settings) -> Teacher:
    [teacher] = open_teachers(settings, open_start(settings.backbone), torch.device("cpu"))
    return teacher


def test_a_teacher_must_have_the_tokens_and_where_it_matters_the_width(
    make_settings: MakeSettings, tmp_path: Path
) -> None:
    def opened(path: str | Path, **objective: Any) -> Teacher:
        return opened_teacher(make_settings(objective={"teacher": str(path), **objective}))

    wide = save_tiny_model(tmp_path / "wide", make_tokenizer(), seed=0, width=64)
    with pytest.raises(
        SettingsError,
        match=r"objective.teacher '.*wide': it has 64 dimensions.* has 32; set objective.teacher_m",
    ):
        opened(wide)
    assert opened(wide, teacher_match="similarities").width == 64
    fewer = save_tiny_model(tmp_path / "fewer", make_tokenizer(PIECES[:-3]), seed=0, width=32)
    with pytest.raises(
        SettingsError, match=r"'.*fewer': its vocabulary lacks 3 of the 98 tokens .* such as '\.'"
    ):
        opened(fewer)
    with pytest.raises(ValidationError, match="mlm makes only one"):
        make_settings(objective={"view": "mlm", "teacher": str(wide)})
    with pytest.raises(ValidationError, match="several teachers need teacher_match similarities"):
        make_settings(objective={"teacher": [str(wide), str(wide)]})
    settings = make_settings(
        backbone={"extend_to": 128, "max_tokens": 128}, objective={"teacher": str(wide)}
    )
    with pytest.raises(
        SettingsError,
        match=r"128 is more than the 64 positions of objective.teacher '.*wide' .*another teacher",
    ):
        opened_teacher(settings)
    same = opened(save_tiny_model(tmp_path / "same", make_tokenizer(), seed=1, width=32))
    assert not same.encoder.training
    assert same.ids is None
    assert not any(weight.requires_grad for weight in same.encoder.parameters())


def test_a_teacher_of_another_vocabulary_reads_the_same_text(
    make_settings: MakeSettings, wide_teacher: Path
) -> None:
    objective = {"teacher": str(wide_teacher), "teacher_match": "similarities"}
    teacher = opened_teacher(make_settings(objective=objective))
    assert teacher.ids is not None
    text = "Bal dem kir kol. Dus [MASK] balx zzz."
    own = AutoTokenizer.from_pretrained(wide_teacher)
    taught = make_tokenizer()
    for tokenizer in (own, taught):
        tokenizer.backend_tokenizer.no_truncation()
        tokenizer.backend_tokenizer.no_padding()
    inputs = own(text.replace("[MASK]", "<mask>"), return_tensors="pt")
    with torch.no_grad():
        expected = teacher.encoder(inputs["input_ids"], inputs["attention_mask"])[1]
    ids = taught(text, return_tensors="pt")["input_ids"]
    assert ids.tolist() != inputs["input_ids"].tolist()
    torch.testing.assert_close(teacher.vectors(ids, torch.ones_like(ids)), expected)
