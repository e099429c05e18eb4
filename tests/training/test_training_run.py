"""Whole runs on a tiny model."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from transformers import AutoModel

from export.progress import RunProgress
from export.requirements import licence
from tests.training.conftest import start_process
from training.__main__ import main
from training.errors import CheckpointError, DivergedError, SettingsError
from training.processes import Processes
from training.settings import Settings, ViewName
from training.trainer import opening
from training.trainer.checkpoint import Checkpoints
from training.trainer.loop import DivergenceWatch, TrainingRun
from training.trainer.output import plot_run, read_lines
from training.trainer.validation import embed_texts

MakeSettings = Callable[..., Settings]
# a batch is one chunk
LEARNS = {"max_steps": 40, "learning_rate": 3e-3, "chunk_tokens": 4_096}


def train(settings: Settings, stop_after: int | None = None) -> TrainingRun:
    run = TrainingRun(settings, Processes(cpu=True))
    run.run(stop_after)
    return run


def losses(folder: Path) -> list[float]:
    return [record["loss"] for record in read_lines(folder / "steps.jsonl")]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    state: dict[str, torch.Tensor] = AutoModel.from_pretrained(folder / "model").state_dict()
    return state


@pytest.mark.parametrize("view", get_args(ViewName))
def test_each_objective_trains(make_settings: MakeSettings, tmp_path: Path, view: str) -> None:
    data = {}
    if view == "links":
        pairs = "\n".join(f"doc-{number},doc-{number + 1}" for number in range(59))
        (tmp_path / "links.csv").write_text(f"citing,cited\n{pairs}", encoding="utf-8")
        data = {"links": str(tmp_path / "links.csv")}
    run = train(make_settings(data=data, objective={"view": view, "span_tokens": 8}))
    if view == "mlm":
        # no contrastive loss to plot
        assert plot_run(tmp_path / "run", run._chance).read_bytes().startswith(b"\x89PNG")
    recorded = read_lines(tmp_path / "run" / "steps.jsonl")
    assert len(recorded) == 2
    assert all(np.isfinite(r["loss"]) and r["gradient_norm"] > 0 for r in recorded)
    assert all((r["contrastive"] > 0) == (view != "mlm") and r["mlm"] > 0 for r in recorded)
    before = AutoModel.from_pretrained(run.settings.backbone.path).state_dict()
    after = weights(tmp_path / "run")
    name = "encoder.layer.0.attention.self.query.weight"
    assert not torch.equal(before[name], after[name])


def test_training_learns(make_settings: MakeSettings, tmp_path: Path) -> None:
    settings = make_settings(
        data={"held_out": 0.4},
        optimisation=LEARNS,
        objective={"mlm_weight": 0.0},
        run={"evaluate_documents": 24},
    )
    found = TrainingRun(settings, Processes(cpu=True)).run()
    assert found.first is not None
    assert found.last is not None
    assert found.last.mrr > found.first.mrr
    curve = losses(tmp_path / "run")
    assert np.mean(curve[-10:]) < 0.8 * np.mean(curve[:10])


@pytest.mark.parametrize("match", ["vectors", "similarities"])
def test_training_approaches_the_teacher(
    make_settings: MakeSettings, tmp_path: Path, teacher: Path, wide_teacher: Path, match: str
) -> None:
    objective = {
        "view": "laser-window" if match == "vectors" else "simcse",
        "teacher": str(teacher if match == "vectors" else wide_teacher),
        "teacher_match": match,
        # with less weight the other loss decides, and the outcome depends on the seed
        "teacher_weight": 1.0 if match == "vectors" else 100.0,
        "mlm_weight": 0.0,
    }
    faster = {"max_steps": 20} if match == "vectors" else {}
    optimisation = LEARNS | faster
    train(make_settings(optimisation=optimisation, objective=objective))
    lines = (tmp_path / "run" / "steps.jsonl").read_text(encoding="utf-8").splitlines()
    apart = [json.loads(line)["teacher"] for line in lines]
    assert np.mean(apart[-10:]) < 0.6 * np.mean(apart[:5])


@pytest.mark.usefixtures("plots")
def test_output_opens_in_sentence_transformers_with_the_same_vectors(
    make_settings: MakeSettings, tmp_path: Path
) -> None:
    run = train(make_settings(run={"tensorboard": True}, data={"held_out": 0.2}))
    folder = tmp_path / "run" / "model"
    opened = SentenceTransformer(str(folder), device="cpu")
    assert opened.max_seq_length == 32
    text = "Bal dem kir kol. Dus bal."
    ids = np.asarray(run.tokenizer.backend_tokenizer.encode(text, add_special_tokens=False).ids)
    vector = embed_texts(
        [[ids]], run.encoder, run.preparation.specials, run.processes, max_tokens=32
    )
    np.testing.assert_allclose(opened.encode([text]), vector.numpy(), atol=1e-5)

    record = json.loads((folder / "training.json").read_text(encoding="utf-8"))
    assert record["settings"] == json.loads(run.settings.model_dump_json())
    assert record["steps"] == 2
    assert record["seen"]["documents"] == 16
    assert record["data"]["training_documents"] + record["data"]["held_out_documents"] == 60
    assert set(record["metrics"]) == {"before", "after"}
    output = tmp_path / "run"
    assert (output / "run.png").read_bytes().startswith(b"\x89PNG")
    assert (output / "steps.csv").read_text(encoding="utf-8").startswith("step,loss,")
    assert list((output / "tensorboard").iterdir())


def test_the_card_has_the_licence_of_the_start_weights_and_names_the_training(
    make_settings: MakeSettings, tiny_model: Path, tmp_path: Path
) -> None:
    start = shutil.copytree(tiny_model, tmp_path / "start")
    (start / "README.md").write_text("---\nlicense: cc-by-4.0\n---\n")
    train(make_settings(backbone={"path": str(start)}))
    folder = tmp_path / "run" / "model"
    card = (folder / "README.md").read_text()
    assert licence("m", card) == "CC-BY-4.0"
    assert "docsplit-train made this encoder of start: trained on 55 documents of doc" in card
    assert str(tmp_path) not in card
    mean = tmp_path / "mean"
    for other, known in ((start, True), (tiny_model, False)):
        assert main(["average", str(folder), str(other), "--output", str(mean)]) == 0
        card = (mean / "README.md").read_text()
        assert ("license: cc-by-4.0" in card) == known
        shutil.rmtree(mean)


@pytest.mark.parametrize(("cached", "cluster_size"), [(False, 0), (True, 8)])
def test_resumed_run_equals_the_uninterrupted_one(
    make_settings: MakeSettings, tmp_path: Path, cached: bool, cluster_size: int
) -> None:
    """Bit by bit, across the end of an epoch, with dropout and masked LM."""
    common: dict[str, Any] = {
        "max_steps": 3, "accumulate": 2, "gradient_cache": cached, "batch_size": 4,
        "cluster_size": cluster_size,
    }  # fmt: skip
    data = {"limit": 20}

    def settings(folder: str, **run: int) -> Settings:
        run_settings = {"output": tmp_path / folder, **run}
        return make_settings(optimisation=common, data=data, run=run_settings)

    # batches of an epoch; the run has six
    assert train(settings("whole"))._order.per_epoch == 4
    parts = settings("parts", workers=2)
    for _ in range(2):
        train(parts, stop_after=1)
    assert not (tmp_path / "parts" / "model").exists()
    train(parts)
    assert len(losses(tmp_path / "whole")) == 3
    assert losses(tmp_path / "parts") == losses(tmp_path / "whole")
    one, other = weights(tmp_path / "whole"), weights(tmp_path / "parts")
    assert all(torch.equal(one[name], other[name]) for name in one)

    # Control: another seed gives another curve.
    train(settings("other", seed=1), stop_after=1)
    assert losses(tmp_path / "other") != losses(tmp_path / "whole")[:1]


def test_an_interrupted_run_embeds_no_block_of_documents_again_for_its_clusters(
    make_settings: MakeSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = make_settings(optimisation={"cluster_size": 8, "max_steps": 1})
    embedded: list[int] = []

    def counting(texts: Any, *given: Any, **named: Any) -> torch.Tensor:
        if len(embedded) == interrupt_after:
            raise KeyboardInterrupt
        embedded.append(len(texts))
        return embed_texts(texts, *given, **named)

    monkeypatch.setattr(opening, "_AT_ONCE", 16)
    monkeypatch.setattr(opening, "embed_texts", counting)
    interrupt_after = 2
    with pytest.raises(KeyboardInterrupt):
        train(settings)
    interrupt_after = -1
    assert sum(embedded) < (documents := len(train(settings).train))
    assert sum(embedded) == documents
    assert not list((tmp_path / "run").glob("neighbourhood-*"))
    train(
        make_settings(
            optimisation={"cluster_size": 8, "max_steps": 1}, run={"output": tmp_path / "whole"}
        )
    )
    assert losses(tmp_path / "run") == losses(tmp_path / "whole")


def test_near_documents_are_no_negatives(
    make_settings: MakeSettings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Random weights give all documents nearly the same vector."""

    def settings(below: float) -> Settings:
        return make_settings(
            objective={"negatives_below": below, "mlm_weight": 0.0},
            optimisation={"max_steps": 1},
            run={"output": tmp_path / str(below)},
        )

    def first_step(below: float) -> dict[str, float]:
        train(settings(below))
        return read_lines(tmp_path / str(below) / "steps.jsonl")[0]

    with pytest.raises(SettingsError, match="leaves no negatives") as refused:
        train(settings(0.01))
    least, most = map(float, re.findall(r"\d\.\d{3}", str(refused.value)))
    some, all_of_them = first_step((least + most) / 2), first_step(1.0)
    assert some["contrastive"] < all_of_them["contrastive"]
    assert 0 < some["left_out_pairs"] < 1
    assert all_of_them["left_out_pairs"] == 0
    assert "objective.negatives_below leaves out" in capsys.readouterr().err


def test_any_seed_clusters_documents(make_settings: MakeSettings) -> None:
    settings = make_settings(
        run={"seed": 5_000_000_000}, optimisation={"cluster_size": 8, "max_steps": 1}
    )
    train(settings)
    assert len(losses(settings.run.output)) == 1


def test_a_run_goes_on_from_records_with_fewer_figures(make_settings: MakeSettings) -> None:
    """An older version wrote the first records."""
    settings = make_settings(optimisation={"max_steps": 2})
    train(settings, stop_after=1)
    steps = settings.run.output / "steps.jsonl"
    old = {k: v for k, v in read_lines(steps)[0].items() if k != "left_out_pairs"}
    steps.write_text(json.dumps(old) + "\n", encoding="utf-8")
    train(settings)
    assert "left_out_pairs" in steps.with_suffix(".csv").read_text(encoding="utf-8")


def test_checkpoint_of_other_settings_is_refused(
    make_settings: MakeSettings, tmp_path: Path
) -> None:
    train(make_settings(optimisation={"max_steps": 4}), stop_after=2)
    with pytest.raises(CheckpointError, match=r"optimisation.learning_rate was 0.001, is 0.5"):
        train(make_settings(optimisation={"max_steps": 4, "learning_rate": 0.5}))
    with pytest.raises(SettingsError, match="already holds a run"):
        train(make_settings(optimisation={"max_steps": 4}, run={"resume": False}))


def test_kill_loses_only_the_work_since_the_last_checkpoint(
    make_settings: MakeSettings, tmp_path: Path
) -> None:
    optimisation = {"max_steps": 400, "precision": "fp32"}
    settings = make_settings(optimisation=optimisation, run={"checkpoint_every": 5})
    output = settings.run.output
    config = tmp_path / "config.json"
    config.write_text(settings.model_dump_json(), encoding="utf-8")
    process = start_process(main, ["--config", str(config)])
    checkpoints = Checkpoints(output / "checkpoints", 2)
    while len(checkpoints.steps()) < 2 and process.is_alive():
        time.sleep(0.01)
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    newest = checkpoints.steps()[-1]
    taken = losses(output)
    assert newest <= len(taken) < newest + 5 + 1
    train(settings, stop_after=4)
    assert losses(output)[:newest] == taken[:newest]
    assert len(losses(output)) == newest + 4
    # The resumed run repeats the lost steps with the same result.
    again = losses(output)[newest : len(taken)]
    assert again == taken[newest : newest + len(again)]


def test_signal_ends_the_run_with_a_checkpoint(
    make_settings: MakeSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = TrainingRun(make_settings(optimisation={"max_steps": 9}), Processes(cpu=True))
    step = TrainingRun._step

    def interrupted(self: TrainingRun, number: int, *rest: Any) -> dict[str, float]:
        if number == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        return step(self, number, *rest)

    monkeypatch.setattr(TrainingRun, "_step", interrupted)
    found = run.run()
    assert (found.step, found.finished, found.model) == (3, False, None)
    assert Checkpoints(tmp_path / "run" / "checkpoints", 2).steps() == [3]
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_nan_stops_the_run_with_a_message(make_settings: MakeSettings, tmp_path: Path) -> None:
    settings = make_settings(optimisation={"max_steps": 6}, run={"checkpoint_every": 2})
    train(settings, stop_after=3)
    run = TrainingRun(settings, Processes(cpu=True))
    path = Checkpoints(tmp_path / "run" / "checkpoints", 2)
    state = path.load(3)
    state["encoder"]["backbone.embeddings.LayerNorm.weight"][0] = float("nan")
    path.save(3, state)
    with pytest.raises(DivergedError) as stopped:
        run.run()
    message = str(stopped.value)
    for part in ("step 4: loss nan", "losses before:", "doc-", "Last checkpoint: step 3"):
        assert part in message
    # The weights did not change, and no checkpoint has the bad state.
    assert path.steps() == [2, 3]
    assert len(losses(tmp_path / "run")) == 3


def test_a_varying_distance_to_the_teacher_does_not_stop_the_run(
    make_settings: MakeSettings, tmp_path: Path, wide_teacher: Path
) -> None:
    objective = {
        "view": "laser-window",
        "teacher": str(wide_teacher),
        "teacher_match": "similarities",
        "teacher_weight": 1000.0,
        "mlm_weight": 0.0,
    }
    train(
        make_settings(
            objective=objective,
            optimisation={"max_steps": 12, "learning_rate": 1e-6, "chunk_tokens": 4_096},
            run={"divergence_window": 4},
        )
    )
    found = losses(tmp_path / "run")
    # Control: the sum of the losses rises like that of a run that has diverged.
    medians = [np.median(found[end - 4 : end]) for end in range(4, len(found) + 1)]
    assert max(np.array(medians) - np.minimum.accumulate(medians)) > 2 * np.log(8)


def test_loss_that_rises_to_chance_stops_the_run() -> None:
    watch = DivergenceWatch(window=4, chance=3.6)
    for step in range(20):
        watch.check(step, 3.5 - 0.15 * step, 1.0, 1e-4, list)
    watch.check(20, 3.5, 1.0, 1e-4, list)
    watch.check(21, 3.5, 1.0, 1e-4, list)
    with pytest.raises(DivergedError, match=r"the lowest so far was 0\.8750, chance is 3\.6000"):
        watch.check(22, 3.5, 1.0, 1e-4, list)


def test_noise_does_not_stop_the_run() -> None:
    watch = DivergenceWatch(window=4, chance=3.6)
    draw = np.random.default_rng(0)
    for step in range(500):
        watch.check(step, float(0.1 + draw.exponential(0.2)), 1.0, 1e-4, list)


def test_full_disk_keeps_earlier_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    for step in (10, 20, 30):
        checkpoints.save(step, {"step": step})
    assert checkpoints.steps() == [20, 30]

    def full(state: object, stream: Any) -> None:
        stream.write(b"half")
        raise OSError(28, "No space left on device")

    def usage(folder: Path) -> Any:
        return SimpleNamespace(free=0 if any(folder.glob("*.partial")) else 5e6)

    reason = (
        r"No space left.*; 0 MB free\); step 30 is the newest complete one; free space or correct"
    )
    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", full)
        patch.setattr(shutil, "disk_usage", usage)
        with pytest.raises(CheckpointError, match=reason):
            checkpoints.save(40, {"step": 40})
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-00000020.pt", "step-00000030.pt"]
    assert checkpoints.load(30) == {"step": 30}


def test_bf16_runs_under_autocast(make_settings: MakeSettings, tmp_path: Path) -> None:
    settings = make_settings(optimisation={"precision": "bf16"})
    TrainingRun(settings, Processes("bf16", cpu=True)).run()
    plain = make_settings(run={"output": tmp_path / "plain"})
    train(plain)
    low, full = losses(tmp_path / "run"), losses(tmp_path / "plain")
    assert low == pytest.approx(full, rel=0.02)
    assert low != full


def test_extended_backbone_trains(make_settings: MakeSettings, tmp_path: Path) -> None:
    backbone = {"extend_to": 256, "attention_window": 16, "max_tokens": 128}
    train(make_settings(backbone=backbone, optimisation={"batch_size": 4}))
    config = json.loads((tmp_path / "run/model/config.json").read_text(encoding="utf-8"))
    assert config["model_type"] == "docsplit_long_bert"
    assert config["max_position_embeddings"] == 256


def test_batch_larger_than_the_corpus_is_refused(make_settings: MakeSettings) -> None:
    with pytest.raises(SettingsError, match=r"optimisation.batch_size: 99 is more than the \d+"):
        TrainingRun(make_settings(optimisation={"batch_size": 99}), Processes(cpu=True))


def test_time_left_counts_steps_and_validations() -> None:
    progress = RunProgress(100, 10, 20, enabled=False)
    assert progress.seconds_left() is None
    for step in range(11, 15):
        progress.step({"step": step, "seconds": 2.0, "documents": 8, "tokens": 800, "loss": 1.0})
    assert progress.seconds_left() == pytest.approx(86 * 2)
    progress.validated(30.0)
    assert progress.seconds_left() == pytest.approx(86 * 2 + 5 * 30)
    words = progress.described({"loss": 1.0})
    assert words == "loss 1.0000 · 4.0 documents/s · 400 tokens/s · 5 min 22 s left"
