"""``optimisation.precision: auto``, and encoders whose weights are in fp16."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from docsplit.engines.choice import Processor
from export.source import open_source, reference_vectors, save_with_code
from tests.training.conftest import MakeSettings
from training import processes
from training.__main__ import main
from training.errors import CheckpointError
from training.evaluation.local_encoders import FolderEncoder
from training.processes import Processes, best_precision
from training.settings import BackboneSettings
from training.trainer.loop import TrainingRun
from training.trainer.output import save_joined


def processor(*, bf16: bool) -> Processor:
    return Processor("a processor", cores=2, bf16=bf16, int8=True)


@pytest.mark.parametrize(("supported", "best"), [(True, "bf16"), (False, "fp32")])
def test_the_best_precision_is_that_of_the_card(
    monkeypatch: pytest.MonkeyPatch, supported: bool, best: str
) -> None:
    def computes(including_emulation: bool = True) -> bool:
        return including_emulation or supported

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", computes)
    monkeypatch.setattr(processes, "detect", lambda: processor(bf16=not supported))
    assert best_precision() == best


@pytest.mark.parametrize(("supported", "best"), [(True, "bf16"), (False, "fp32")])
def test_without_a_card_the_best_precision_is_that_of_the_processor(
    monkeypatch: pytest.MonkeyPatch, supported: bool, best: str
) -> None:
    monkeypatch.setattr(processes, "detect", lambda: processor(bf16=supported))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert best_precision() == best
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert best_precision(cpu=True) == best


def test_a_run_keeps_the_precision_that_it_began_with(
    make_settings: MakeSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = make_settings()
    monkeypatch.setattr(processes, "detect", lambda: processor(bf16=False))
    assert settings.optimisation.precision == "auto"
    TrainingRun(settings, Processes("auto", cpu=True)).run(1)
    written = json.loads((tmp_path / "run/settings.json").read_text(encoding="utf-8"))
    assert written["optimisation"]["precision"] == "fp32"
    with pytest.raises(CheckpointError, match=r"optimisation.precision was 'fp32', is 'bf16'"):
        TrainingRun(settings, Processes("bf16", cpu=True))
    # another machine, whose own choice is bf16
    monkeypatch.setattr(processes, "detect", lambda: processor(bf16=True))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    resumed = TrainingRun(settings)
    assert resumed.processes.precision == "fp32"
    assert resumed.run().finished
    afresh = settings.run.model_copy(update={"output": tmp_path / "other"})
    control = TrainingRun(settings.model_copy(update={"run": afresh}))
    assert control.processes.precision == "bf16"


@pytest.fixture
def half(tiny_model: Path, tmp_path: Path) -> Path:
    """An encoder with weights in fp16, in which transformers opens and computes them."""
    SentenceTransformer(str(tiny_model), device="cpu").half().save_pretrained(
        str(tmp_path / "half"), create_model_card=False
    )
    assert SentenceTransformer(str(tmp_path / "half"), device="cpu").dtype == torch.float16
    return tmp_path / "half"


@pytest.fixture
def branched(half: Path, tmp_path: Path) -> Path:
    """The same with a static branch, all in fp16."""
    vectors = torch.randn(len(SentenceTransformer(str(half), device="cpu").tokenizer), 8)
    settings = BackboneSettings(path=str(half), max_tokens=32, static_share=0.4)
    save_joined(vectors, settings, tmp_path / "joined")
    joined = SentenceTransformer(str(tmp_path / "joined"), device="cpu", trust_remote_code=True)
    save_with_code(joined.half(), tmp_path / "branched")
    return tmp_path / "branched"


@pytest.mark.parametrize("kind", ["half", "branched"])
def test_weights_in_fp16_are_measured_in_fp32(kind: str, request: pytest.FixtureRequest) -> None:
    folder = str(request.getfixturevalue(kind))
    texts = ["bal dem kir kol dus.", "dal"]
    opened = [SentenceTransformer(folder, device="cpu", trust_remote_code=True) for _ in range(2)]
    exact, rounded = (
        model.encode(texts, normalize_embeddings=True) for model in (opened[0].float(), opened[1])
    )
    found = FolderEncoder(folder, "half", 32).encode(texts, "whole")
    np.testing.assert_allclose(reference_vectors(open_source(folder), texts), exact, atol=1e-6)
    np.testing.assert_allclose(found, exact, atol=1e-6)
    assert np.abs(rounded - exact).max() > 1e-5


def test_the_mean_of_weights_in_fp16_is_not_rounded(
    half: Path, tiny_model: Path, tmp_path: Path
) -> None:
    out = tmp_path / "mean"
    assert main(["average", str(half), str(tiny_model), "--output", str(out)]) == 0
    parts = [SentenceTransformer(str(one), device="cpu").state_dict() for one in (half, tiny_model)]
    after = SentenceTransformer(str(out), device="cpu").state_dict()
    for key in [key for key in after if "pooler" not in key and after[key].is_floating_point()]:
        mean = (parts[0][key].double() + parts[1][key].double()) / 2
        torch.testing.assert_close(after[key], mean.float())


def test_a_map_is_fitted_after_weights_in_fp16(half: Path, corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "whitened"
    command = ["whiten", str(half), str(corpus), "--output", str(out), "--max-tokens", "32"]
    assert main([*command, "--power", "0.5"]) == 0
    model = SentenceTransformer(str(out), device="cpu")
    assert {value.dtype for value in model.state_dict().values()} <= {torch.float32, torch.int64}
    assert np.isfinite(model.encode(["bal dem"])).all()
