"""Operators that stay in floating point until a graph holds its thresholds."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from transformers import BertModel

from docsplit.bundles.format import load, write
from docsplit.bundles.manifest import PrecisionName
from docsplit.engines.choice import detect
from export import repair
from export.__main__ import main
from export.errors import ExportError, IncompleteError
from export.pipeline import Request, put_in_place
from export.pipeline import export as run
from export.repair import MOST, Candidate, Choice
from export.thresholds import THRESHOLDS

pytestmark = pytest.mark.usefixtures("neighbours_of_random_encoders")
Order = Callable[..., Request]


@pytest.fixture(scope="module")
def order(text_file: Path, bert_folder: Path) -> Order:
    def make(dest: Path, *precisions: PrecisionName, **settings: Any) -> Request:
        values: dict[str, Any] = {
            "source": str(bert_folder),
            "precisions": precisions,
            "paragraphs": 200,
        }
        values |= {"licence": "MIT", "max_tokens": 64, "calibration": text_file, "threads": 1}
        return Request(dest=dest, **(values | settings))

    return make


@pytest.fixture(scope="module")
def offset(bert_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Layer norms add a large constant, which the next norm removes. fp16 rounds the sum."""
    folder = shutil.copytree(bert_folder, tmp_path_factory.mktemp("offset") / "tiny")
    model: Any = BertModel.from_pretrained(folder)
    attention = model.encoder.layer[1].attention.self
    with torch.no_grad():
        model.encoder.layer[0].output.LayerNorm.bias += 300
        for dense in (attention.query, attention.key, attention.value):
            dense.weight -= dense.weight.mean(dim=1, keepdim=True)
    model.save_pretrained(folder)
    return folder


def candidate(error: float, **operators: str) -> Candidate:
    return Candidate(operators, error)


def test_cheap_operators_come_first_and_only_as_many_as_needed() -> None:
    choice = Choice(
        [
            candidate(8.0, dense="MatMul", norm="LayerNorm"),
            candidate(4.0, norm="LayerNorm", sum="Add"),
            candidate(4.0, other="MatMul"),
            candidate(0.001, gather="Gather"),
        ],
        {"dense": 400, "other": 100},
    )
    assert choice.reduce(0.95)
    assert list(choice.kept) == ["norm", "sum"]
    assert choice.multiplications == 0
    # `other` removes half as much error as `dense` with a quarter of the multiplications
    assert choice.reduce(0.85)
    assert list(choice.kept) == ["norm", "sum", "other"]
    assert choice.multiplications == 0.2
    assert choice.error == pytest.approx(8.001)
    assert choice.reduce(0)
    assert list(choice.kept) == ["norm", "sum", "other", "dense", "gather"]
    assert (choice.multiplications, choice.error) == (1, 0)
    assert not choice.reduce(0)


def test_fp16_keeps_operators_until_it_holds(
    order: Order, offset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    notes: list[str] = []
    run(order(tmp_path / "bundle", "fp16", source=str(offset)), note=notes.append)
    bundle = load(tmp_path / "bundle")
    fp16 = bundle.manifest.precisions["fp16"]
    assert fp16.repair is not None
    limit = THRESHOLDS["fp16"]["cosine_mean"]
    assert fp16.repair.before["cosine_mean"] < limit <= fp16.parity.cosine_mean
    assert list(fp16.repair.kept)[:2] == ["SkipLayerNorm_AddBias_1", "SkipLayerNorm_AddBias_2"]
    assert len(fp16.repair.kept) < 6
    assert 0 < fp16.repair.multiplications < 0.5
    assert fp16.accepted == []
    assert "cosine_mean 0.999" in notes[0]
    assert "of the multiplications; encoding the paragraphs took" in notes[1]
    # the residual sum passes between the two norms without a cast
    nodes = {node.name: node for node in onnx.load(bundle.graph("fp16")).graph.node}
    first, second = (nodes[name] for name in list(fp16.repair.kept)[:2])
    assert set(first.output) & set(second.input)
    assert main(["inspect", str(bundle.root)]) == 0
    said = capsys.readouterr().out
    assert f"fp16: {len(fp16.repair.kept)} operators stay in floating point" in said
    assert "SkipLayerNorm_AddBias_1 (SkipLayerNormalization): error" in said


@pytest.mark.skipif(not detect().int8, reason="sums of int8 products saturate on this processor")
def test_int8_keeps_operators_until_it_holds(order: Order, tmp_path: Path) -> None:
    thresholds = {"int8.cosine_mean": 0.99997}
    made: Any = run(order(tmp_path / "bundle", "int8", thresholds=thresholds)).precisions["int8"]
    assert made.repair is not None
    assert made.repair.before["cosine_mean"] < 0.99997 <= made.parity.cosine_mean
    assert made.parity.thresholds["cosine_mean"] == 0.99997
    assert 0 < made.repair.multiplications <= MOST
    kept = [name for name, one in made.repair.kept.items() if one.kernel == "MatMul"]
    # 14 of the encoder's 16 products are int8 without repair
    assert made.kernels["MatMul int8"] == 14 - len(kept) < 14


def test_a_failed_form_does_not_take_the_others_with_it(
    order: Order,
    text_file: Path,
    shallow_folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = [str(shallow_folder), str(tmp_path / "bundle"), "--licence", "MIT"]
    options = ["--calibration", str(text_file), "--paragraphs", "200", "--keep-float", "nowhere"]
    assert main([*arguments, *options]) == 3
    said = " ".join(capsys.readouterr().err.split())
    assert "written without int8: --keep-float nowhere: no op" in said
    assert list(load(tmp_path / "bundle").manifest.precisions) == ["fp16"]
    # every form failed
    none = order(tmp_path / "none", "int8", source=str(shallow_folder), keep_float="nowhere")
    with pytest.raises(ExportError, match="--keep-float nowhere") as refusal:
        run(none)
    assert not isinstance(refusal.value, IncompleteError)
    assert not (tmp_path / "none").exists()


def test_a_failed_form_does_not_replace_a_bundle_that_has_it(
    light: tuple[str, ...], tmp_path: Path
) -> None:
    dest, new = (shutil.copytree(light[1], tmp_path / name) for name in ("bundle", "new"))
    former = load(dest).manifest
    assert list(former.precisions) == ["fp16"]
    (new / "mark").touch()
    with pytest.raises(ExportError, match="has fp16, which failed this time, so it stays"):
        put_in_place(new, dest, tmp_path, force=True, failed={"fp16"})
    assert load(dest).manifest == former
    assert not (dest / "mark").exists()
    put_in_place(new, dest, tmp_path, force=True, failed={"int8"})
    assert (dest / "mark").exists()


def test_a_missed_threshold_is_written_only_if_it_is_accepted(
    order: Order,
    offset: Path,
    text_file: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(repair, "MOST", -1.0)
    refused = (
        r"cosine_mean 0\.999\d+ is below 0\.9999; .* would have to stay .*; --accept fp16 writes"
    )
    with pytest.raises(ExportError, match=refused):
        run(order(tmp_path / "bundle", "fp16", source=str(offset)))
    assert list(tmp_path.iterdir()) == []
    made = run(order(tmp_path / "bundle", "fp16", source=str(offset), accept=["fp16"]))
    missed, *_ = made.precisions["fp16"].accepted
    assert missed.startswith("cosine_mean 0.999")
    assert load(tmp_path / "bundle").manifest == made
    capsys.readouterr()
    assert main(["inspect", str(tmp_path / "bundle")]) == 0
    assert f"fp16: accepted at export although {missed}" in capsys.readouterr().out
    command = ["verify", str(tmp_path / "bundle"), "--source", str(offset)]
    command += ["--calibration", str(text_file), "--paragraphs", "200"]
    assert main(command) == 0
    assert "fp16: accepted at export although cosine_mean" in capsys.readouterr().out
    # the control: the same graph without --accept
    fp16 = made.precisions["fp16"].model_copy(update={"accepted": []})
    write(tmp_path / "bundle", made.model_copy(update={"precisions": {"fp16": fp16}}))
    assert main(command) == 1


@pytest.mark.parametrize(
    "threshold", ["int8", "int4.cosine_min=.9", "int8.loss=.1", "int8.probe=2", "fp16.cosine_min=x"]
)
def test_an_unknown_threshold_ends_with_usage(
    threshold: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(["a", "b", "--licence", "MIT", "--threshold", threshold])
    assert end.value.code == 2
    assert "--threshold" in capsys.readouterr().err
