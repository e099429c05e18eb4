"""Whole runs started by torchrun."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.conftest import NIGHTLY, free_port
from tests.training.test_training_run import losses, train, weights
from training.settings import Settings

MakeSettings = Callable[..., Settings]


def launch(settings: Settings, folder: Path, processes: int) -> None:
    config = folder / f"config-{processes}.json"
    config.write_text(settings.model_dump_json(), encoding="utf-8")
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={processes}"]
    command += [f"--master-port={free_port()}", "-m", "training", "--config", str(config)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]


# test_gradients.py compares the gradients of two processes every time
@pytest.mark.skipif(not NIGHTLY, reason="three trainings: nightly")
def test_two_processes_train_the_same_model_as_one(
    make_settings: MakeSettings, tmp_path: Path
) -> None:
    found = {}
    # without dropout: it depends on the chunks, whose number is a multiple of the processes
    for processes, seed in ((1, 0), (2, 0), (1, 1)):
        output = tmp_path / f"{processes}-{seed}"
        settings = make_settings(
            run={"output": str(output), "seed": seed},
            backbone={"dropout": 0.0, "attention_dropout": 0.0},
            optimisation={"chunk_tokens": 100, "max_steps": 3},
        )
        if processes == 1:
            train(settings)
        else:
            launch(settings, tmp_path, processes)
        found[processes, seed] = losses(output), weights(output)
    (one, first), (two, second), (other, third) = found.values()
    assert two == pytest.approx(one, rel=1e-5)
    for name, tensor in first.items():
        assert torch.allclose(tensor, second[name], atol=1e-5), name
    # control: another seed gives another model
    assert other != pytest.approx(one, rel=1e-3)
    assert any(not torch.allclose(tensor, third[name], atol=1e-4) for name, tensor in first.items())
