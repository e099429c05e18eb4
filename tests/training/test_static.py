"""The static branch: its training, its files and its arithmetic."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from transformers import PreTrainedTokenizerFast

from export.static_branch import StaticBranch
from tests.training.conftest import WORDS
from training.__main__ import parse
from training.documents import open_cache
from training.encoder import StaticBackbone
from training.errors import SettingsError
from training.processes import Processes
from training.settings import Settings
from training.trainer.loop import TrainingRun
from training.trainer.output import read_lines

MakeSettings = Callable[..., Settings]
STATIC = {"static_width": 16, "max_tokens": 24}
NO_MASKS = {"mlm_weight": 0.0}


def run_static(make_settings: MakeSettings, **more: dict[str, object]) -> TrainingRun:
    sections: dict[str, dict[str, object]] = {
        "backbone": dict(STATIC),
        "objective": dict(NO_MASKS),
        "optimisation": {"max_steps": 30, "learning_rate": 1e-2},
    }
    for name, values in more.items():
        sections[name] = {**sections.get(name, {}), **values}
    run = TrainingRun(make_settings(**sections), Processes(cpu=True))
    run.run()
    return run


def static_vectors(branch: StaticBranch, ids: list[list[int]]) -> torch.Tensor:
    width = max(map(len, ids))
    mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in ids])
    padded = torch.tensor([row + [0] * (width - len(row)) for row in ids])
    features = {
        "input_ids": padded,
        "attention_mask": mask,
        "sentence_embedding": torch.ones(len(ids), 4),
    }
    return branch(features)["sentence_embedding"]


def test_training_the_branch_learns_and_leaves_the_encoder(
    make_settings: MakeSettings, tmp_path: Path
) -> None:
    run = run_static(make_settings)
    records = read_lines(tmp_path / "run" / "steps.jsonl")
    first, last = (
        np.mean([r["contrastive"] for r in part]) for part in (records[:5], records[-5:])
    )
    assert last < 0.8 * first
    joined = SentenceTransformer(str(tmp_path / "run" / "model"), trust_remote_code=True)
    before = SentenceTransformer(run.settings.backbone.path).state_dict()
    after = joined.state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items())


def test_the_cosine_is_the_mean_of_both_branches_cosines(
    make_settings: MakeSettings, tmp_path: Path
) -> None:
    run = run_static(make_settings, backbone={"static_share": 0.4})
    joined = SentenceTransformer(str(tmp_path / "run" / "model"), trust_remote_code=True)
    plain = SentenceTransformer(run.settings.backbone.path)
    texts = ["Bal bem bin. Dal.", "Bal bem. Kul kut!", "Dos dor del."]
    both = joined.encode(texts)
    contextual = plain.encode(texts, normalize_embeddings=True)
    assert both.shape[1] == contextual.shape[1] + 16
    branch = both[:, contextual.shape[1] :] / 0.4**0.5
    np.testing.assert_allclose(
        both @ both.T, 0.6 * contextual @ contextual.T + 0.4 * branch @ branch.T, atol=1e-5
    )
    assert np.abs(both @ both.T - contextual @ contextual.T).max() > 0.01


def test_the_stored_branch_computes_what_was_trained(
    make_settings: MakeSettings, tmp_path: Path, tokenizer: PreTrainedTokenizerFast
) -> None:
    run = run_static(make_settings)
    backbone = run.encoder.backbone
    assert isinstance(backbone, StaticBackbone)
    texts = ["Bal bal bal bem. Dos!", "Kul.", "Dal del dil dil dol."]
    batch = tokenizer(texts, padding=True, truncation=False, return_tensors="pt")
    trained = run.encoder(batch["input_ids"], batch["attention_mask"])[1]
    trained = torch.nn.functional.normalize(trained, dim=1).detach().numpy()
    joined = SentenceTransformer(str(tmp_path / "run" / "model"), trust_remote_code=True)
    branch = joined.encode(texts)[:, -16:] / 0.3**0.5
    # eight bits for each value
    assert (trained * branch).sum(1).min() > 0.999
    assert (trained * branch[::-1]).sum(1).min() < 0.9


def test_repetitions_count_by_their_logarithm_and_padding_not_at_all() -> None:
    branch = StaticBranch(8, 2, 0.5)
    branch.fill(torch.tensor([[0.0, 0], [1, 0], [0, 1], [1, 1], [0, 0], [0, 0], [0, 0], [0, 0]]))
    once, thrice, padded = static_vectors(branch, [[1, 2], [1, 1, 2, 1], [1, 2, 0, 0]])[:, 4:]
    assert once[0] / once[1] == pytest.approx(1, rel=1e-3)
    assert thrice[0] / thrice[1] == pytest.approx(1 + np.log(3), rel=1e-3)
    torch.testing.assert_close(once, padded)


def test_a_text_without_words_keeps_its_contextual_vector() -> None:
    branch = StaticBranch(4, 2, 0.5)
    branch.fill(torch.tensor([[0.0, 0], [1, 0], [0, 1], [0, 0]]))
    vector = static_vectors(branch, [[3, 3]])[0]
    torch.testing.assert_close(vector[4:], torch.zeros(2))
    torch.testing.assert_close(vector[:4], torch.full((4,), 0.5**0.5 / 2))


def test_eight_bits_keep_the_lengths_and_directions_of_tokens() -> None:
    rng = torch.Generator().manual_seed(0)
    vectors = torch.randn(50, 32, generator=rng) * torch.linspace(0.1, 3, 50)[:, None]
    vectors[7] = 0
    branch = StaticBranch(50, 32, 0.3)
    branch.fill(vectors)
    stored = branch.table.float() * branch.scale.float()
    stored = stored * (vectors.norm() / stored.norm())
    torch.testing.assert_close(stored, vectors, atol=0.03, rtol=0.02)
    assert not stored[7].any()


def test_rare_tokens_start_with_longer_vectors(
    make_settings: MakeSettings, tokenizer: PreTrainedTokenizerFast
) -> None:
    settings = make_settings(backbone=STATIC, objective=NO_MASKS)
    cache = open_cache(settings.data, tokenizer)
    train, _ = cache.select(0.0)
    backbone = StaticBackbone(tokenizer, 16)
    before = backbone.vectors().norm(dim=1)
    backbone.weigh(cache, train)
    factors = backbone.vectors().norm(dim=1) / before
    ids = tokenizer.get_vocab()
    assert factors[ids["."]] == 0  # in every document
    assert not backbone.vectors()[ids["[CLS]"]].any()
    words = [number for token, number in ids.items() if token in WORDS]
    counts = [sum(any(word in s for s in cache.sentences(int(d))) for d in train) for word in words]
    rarest_first = sorted(zip(counts, factors[words].tolist(), strict=True))
    assert rarest_first[0][0] < rarest_first[-1][0]
    assert [factor for _, factor in rarest_first] == pytest.approx(
        sorted(factors[words].tolist(), reverse=True)
    )


def test_an_interrupted_run_takes_the_steps_of_an_uninterrupted_one(
    make_settings: MakeSettings, tmp_path: Path
) -> None:
    sections = {"backbone": STATIC, "objective": NO_MASKS, "optimisation": {"max_steps": 6}}
    for stop in (3, None):
        TrainingRun(make_settings(**sections), Processes(cpu=True)).run(stop)
    whole = {**sections, "run": {"output": tmp_path / "whole"}}
    TrainingRun(make_settings(**whole), Processes(cpu=True)).run()
    losses = [
        [r["loss"] for r in read_lines(tmp_path / name / "steps.jsonl")]
        for name in ("run", "whole")
    ]
    assert losses[0] == losses[1]
    assert len(losses[0]) == 6


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        ([], "set objective.mlm_weight to 0"),
        (["--objective.mlm_weight", "0", "--objective.teacher", "x"], "objective.teacher"),
        (["--objective.mlm_weight", "0", "--backbone.extend_to", "4096"], "backbone.extend_to"),
    ],
)
def test_settings_that_need_an_encoder_are_refused(flags: list[str], reason: str) -> None:
    needed = ["--data.path", "x", "--backbone.path", "x", "--run.output", "x"]
    with pytest.raises(SettingsError, match=reason):
        parse([*needed, "--backbone.static_width", "16", *flags])


def test_a_run_starts_from_the_result_of_another(
    make_settings: MakeSettings, tmp_path: Path
) -> None:
    run_static(make_settings, optimisation={"max_steps": 1})
    start = str(tmp_path / "run" / "model")
    second = run_static(
        make_settings,
        backbone={"path": start},
        optimisation={"max_steps": 1},
        run={"output": tmp_path / "second"},
    )
    joined = SentenceTransformer(str(second.output / "model"), trust_remote_code=True)
    assert [type(module).__name__ for module in joined].count("StaticBranch") == 2


def test_the_folder_names_its_own_code(make_settings: MakeSettings, tmp_path: Path) -> None:
    run_static(make_settings)
    folder = tmp_path / "run" / "model"
    kinds = [module["type"] for module in json.loads((folder / "modules.json").read_text())]
    assert "static_branch.StaticBranch" in kinds
    assert (folder / "static_branch.py").is_file()
    assert (folder / "training.json").is_file()
    with pytest.raises(ValueError, match="trust_remote_code"):
        SentenceTransformer(str(folder))
