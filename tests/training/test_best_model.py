"""The best model of a run: early stopping, and a full disk."""

from __future__ import annotations

import resource
import signal
from pathlib import Path

import pytest
import torch

from tests.training.conftest import MakeSettings
from tests.training.test_training_run import weights
from training.errors import CheckpointError
from training.processes import Processes
from training.trainer.checkpoint import BestModel
from training.trainer.loop import TrainingRun
from training.trainer.validation import Validation


def test_a_full_disk_leaves_the_former_best_model(
    make_settings: MakeSettings, tmp_path: Path
) -> None:
    settings = make_settings(run={"keep_best": True}).run
    path = tmp_path / "best.pt"
    small, large = torch.nn.Linear(2, 2), torch.nn.Linear(2000, 2000)
    validation = Validation(discrimination=0.5, mrr=0.1, documents=8)
    BestModel(settings, small, path, writes=True).judge(validation)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    former = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))
    try:
        with pytest.raises(CheckpointError, match=r"best\.pt: could not be written"):
            BestModel(settings, large, path, writes=True).judge(validation)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, former)
    assert [file.name for file in tmp_path.glob("best.*")] == ["best.pt"]
    assert set(torch.load(path)) == {"weight", "bias"}
    assert torch.load(path)["bias"].shape == (2,)


def test_early_stop_and_best_model(
    make_settings: MakeSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = iter([0.1, 0.5, 0.4, 0.3, *[0.9] * 9])
    kept: dict[int, dict[str, torch.Tensor]] = {}
    settings = make_settings(
        optimisation={"max_steps": 9}, run={"evaluate_every": 1, "patience": 2, "keep_best": True}
    )
    run = TrainingRun(settings, Processes(cpu=True))

    def scripted(self: TrainingRun) -> Validation:
        kept[len(kept)] = {k: v.clone() for k, v in self.encoder.backbone.state_dict().items()}
        return Validation(discrimination=0.5, mrr=next(values), documents=8)

    monkeypatch.setattr(TrainingRun, "validation", scripted)
    found = run.run()
    assert (found.step, found.stopped_early) == (3, True)
    written = weights(tmp_path / "run")
    name = "encoder.layer.0.output.dense.weight"
    assert torch.equal(written[name], kept[1][name])
    assert not torch.equal(written[name], kept[3][name])
    # the same command does not train on: all further values are better
    again = TrainingRun(settings, Processes(cpu=True)).run()
    assert (again.step, again.stopped_early) == (3, True)
    assert torch.equal(weights(tmp_path / "run")[name], kept[1][name])


def test_a_run_that_only_gets_worse_gives_its_start_weights(
    make_settings: MakeSettings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    values = iter([0.5, 0.4, 0.3, *[0.9] * 9])
    settings = make_settings(
        optimisation={"max_steps": 9}, run={"evaluate_every": 1, "patience": 2, "keep_best": True}
    )
    run = TrainingRun(settings, Processes(cpu=True))
    start = {k: v.clone() for k, v in run.encoder.backbone.state_dict().items()}
    monkeypatch.setattr(
        TrainingRun,
        "validation",
        lambda self: Validation(discrimination=0.5, mrr=next(values), documents=8),
    )
    assert run.run(stop_after=1).step == 1
    found = TrainingRun(settings, Processes(cpu=True)).run()
    assert (found.step, found.stopped_early) == (2, True)
    written = weights(tmp_path / "run")
    name = "encoder.layer.0.output.dense.weight"
    assert torch.equal(written[name], start[name])
    assert "no validation was better than that of the start weights" in capsys.readouterr().out


def test_a_run_does_not_go_on_without_its_best_model(
    make_settings: MakeSettings, tmp_path: Path
) -> None:
    """Else the last model would be written as the best one."""
    settings = make_settings(run={"evaluate_every": 1, "keep_best": True})
    assert TrainingRun(settings, Processes(cpu=True)).run().finished
    (tmp_path / "run" / "best.pt").unlink()
    with pytest.raises(CheckpointError, match=r"best\.pt is missing"):
        TrainingRun(settings, Processes(cpu=True)).run()
