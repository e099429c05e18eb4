"""The demonstration of a training."""

from __future__ import annotations

import json
import os
import runpy
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.training.conftest import make_tokenizer, save_tiny_model
from training.trainer.loop import TrainingRun

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def demo() -> Any:
    """``examples/peps/train.py``, which is no package."""
    return SimpleNamespace(**runpy.run_path(str(ROOT / "examples" / "peps" / "train.py")))


@pytest.fixture(scope="module")
def citations(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("citations") / "citations.csv"
    lines = [f"doc-{i},doc-{(7 * i + k) % 60}" for i in range(60) for k in range(1, 6)]
    path.write_text("\n".join(["citing,cited", *lines]) + "\n", encoding="utf-8")
    return path


def start_of(folder: Path, seed: int) -> Path:
    return save_tiny_model(folder, make_tokenizer(), seed=seed, width=32, positions=128)


def run(demo: Any, start: Path, corpus: Path, citations: Path, output: Path, *more: str) -> int:
    given = ["--start", str(start), "--documents", str(corpus), "--citations", str(citations)]
    status: int = demo.main([*given, "--output", str(output), "--steps", "2", *more])
    return status


def figures(output: Path) -> tuple[float, float]:
    before, after = json.loads((output / "demo.json").read_text(encoding="utf-8"))["citation_mrr"]
    return before, after


def test_a_demo_compares_with_its_own_start_weights(
    demo: Any, corpus: Path, citations: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = start_of(tmp_path / "one", 1), start_of(tmp_path / "other", 2)
    with monkeypatch.context() as changed:
        # as after an interruption before the first checkpoint
        changed.setattr(TrainingRun, "run", lambda run: os.kill(os.getpid(), signal.SIGTERM))
        assert run(demo, one, corpus, citations, tmp_path / "shared") == 130
    assert run(demo, other, corpus, citations, tmp_path / "shared") == 0
    assert run(demo, other, corpus, citations, tmp_path / "fresh") == 0
    assert figures(tmp_path / "shared") == figures(tmp_path / "fresh")


def test_a_wrong_demo_says_why(
    demo: Any, corpus: Path, citations: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start = start_of(tmp_path / "start", 1)
    (tmp_path / "file").write_text("")
    assert run(demo, start, corpus, citations, tmp_path / "file" / "demo") == 1
    assert "correct the path, then repeat the command" in capsys.readouterr().err
    outside = tmp_path / "outside.csv"
    outside.write_text("citing,cited\ndoc-1,elsewhere\n", encoding="utf-8")
    assert run(demo, start, corpus, outside, tmp_path / "demo") == 1
    assert "outside.csv: no held-out document cites another one" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        run(demo, start, corpus, citations, tmp_path / "demo", "--steps", "0")
    assert "--steps" in capsys.readouterr().err
