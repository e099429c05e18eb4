"""``optimisation.precision: auto``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from tests.training.conftest import MakeSettings
from training.errors import CheckpointError
from training.processes import Processes, best_precision
from training.trainer.loop import TrainingRun


@pytest.mark.parametrize(("supported", "best"), [(True, "bf16"), (False, "fp32")])
def test_the_best_precision_is_that_of_the_card(
    monkeypatch: pytest.MonkeyPatch, supported: bool, best: str
) -> None:
    def computes(including_emulation: bool = True) -> bool:
        return including_emulation or supported

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", computes)
    assert best_precision() == best
    assert best_precision(cpu=True) == "fp32"


def test_a_run_keeps_the_precision_that_it_began_with(
    make_settings: MakeSettings, tmp_path: Path
) -> None:
    settings = make_settings()
    assert settings.optimisation.precision == "auto"
    TrainingRun(settings, Processes("auto", cpu=True)).run(1)
    written = json.loads((tmp_path / "run/settings.json").read_text(encoding="utf-8"))
    assert written["optimisation"]["precision"] == "fp32"
    with pytest.raises(CheckpointError, match=r"optimisation.precision was 'fp32', is 'bf16'"):
        TrainingRun(settings, Processes("bf16", cpu=True))
