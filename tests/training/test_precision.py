"""``optimisation.precision: auto``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from docsplit.engines.choice import Processor
from tests.training.conftest import MakeSettings
from training import processes
from training.errors import CheckpointError
from training.processes import Processes, best_precision
from training.trainer.loop import TrainingRun


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
