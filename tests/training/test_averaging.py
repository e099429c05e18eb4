"""Average the weights of encoders."""

from __future__ import annotations

import json
import re
import resource
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from transformers import AutoModel

from training.__main__ import main


@pytest.fixture
def moved(tiny_model: Path, tmp_path: Path) -> Path:
    """The tiny model with every weight 1 higher."""
    model = SentenceTransformer(str(tiny_model), device="cpu")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1)
    model.save_pretrained(str(tmp_path / "moved"), create_model_card=False)
    return tmp_path / "moved"


def test_every_weight_is_the_weighted_mean(tiny_model: Path, moved: Path, tmp_path: Path) -> None:
    out = tmp_path / "mean"
    given = ["average", str(tiny_model), str(moved), "--shares", "3", "1", "--output", str(out)]
    assert main(given) == 0
    before = SentenceTransformer(str(tiny_model), device="cpu").state_dict()
    after = SentenceTransformer(str(out), device="cpu")
    for key, value in after.state_dict().items():
        if value.is_floating_point() and "pooler" not in key:
            torch.testing.assert_close(value, before[key] + 0.25)
    assert np.isfinite(after.encode("a sentence")).all()
    record = json.loads((out / "training.json").read_text())
    assert [part["share"] for part in record["average"]] == [0.75, 0.25]


def test_a_share_below_zero_subtracts(tiny_model: Path, moved: Path, tmp_path: Path) -> None:
    out = tmp_path / "less"
    given = ["average", str(tiny_model), str(moved), "--shares", "2", "-1", "--output", str(out)]
    assert main(given) == 0
    before = SentenceTransformer(str(tiny_model), device="cpu").state_dict()
    for key, value in SentenceTransformer(str(out), device="cpu").state_dict().items():
        if value.is_floating_point() and "pooler" not in key:
            torch.testing.assert_close(value, before[key] - 1)


@pytest.mark.parametrize(
    ("models", "flags", "said"),
    [
        (1, [], "name two or more"),
        (2, ["--shares", "0", "0"], "above 0"),
        (2, ["--shares", "1", "-1"], "above 0"),
        (2, ["--shares", "1", "2", "3"], "3 shares for 2 models"),
        (2, ["--shares", "nan", "1"], "finite"),
        (2, ["--shares", "inf", "1"], "finite"),
        (2, [], "exists"),
    ],
)
def test_models_and_shares_that_do_not_fit_are_refused(
    tiny_model: Path,
    tmp_path: Path,
    models: int,
    flags: list[str],
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = [str(tiny_model)] * models
    assert main(["average", *given, "--output", str(tmp_path), *flags]) == 1
    assert said in capsys.readouterr().err


def test_other_architectures_are_refused(
    tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wider = shutil.copytree(tiny_model, tmp_path / "wider")
    backbone = AutoModel.from_pretrained(tiny_model)
    backbone.resize_token_embeddings(backbone.config.vocab_size + 8)
    backbone.save_pretrained(wider)
    given = [str(tiny_model), str(wider), "--output", str(tmp_path / "mean")]
    assert main(["average", *given]) == 1
    assert "differ in architecture" in capsys.readouterr().err
    assert not (tmp_path / "mean").exists()


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("./absent", r"\./absent: no such folder"),
        ("file", "file: a file; give the folder of an encoder"),
        ("empty", r"empty: not an encoder that sentence-transformers opens, here or on the hub \("),
    ],
)
def test_a_model_that_does_not_open_is_named(
    place: str,
    reason: str,
    tiny_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("")
    Path("empty").mkdir()
    assert main(["average", str(tiny_model), place, "--output", "mean"]) == 1
    assert re.search(f"docsplit-train: {reason}", capsys.readouterr().err)
    assert not Path("mean").exists()


def test_a_full_disk_leaves_no_half_of_an_encoder(
    tiny_model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = ["average", *[str(tiny_model)] * 2, "--output", str(tmp_path / "mean")]
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
    try:
        assert main(given) == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert "could not be written" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
    assert main(given) == 0
