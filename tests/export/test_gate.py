"""The gate with tiny exports: losses at tasks, figures in the manifest, changed bundles."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from docsplit.bundles.format import Bundle, digest, load, seal
from docsplit.bundles.manifest import MANIFEST, BundleError, Manifest
from docsplit.windowing.vectors import read
from docsplit.windowing.windows import Window
from export import fp16, gate, texts
from export.__main__ import main
from export.engines import Inputs
from export.errors import ExportError
from export.fp16 import Fused
from export.pipeline import Request
from export.pipeline import export as run
from export.source import Source
from export.tasks import LIMITS, HeldOut
from export.thresholds import THRESHOLDS
from tests.export.held_out import write_judged, write_labelled

pytestmark = pytest.mark.usefixtures("neighbours_of_random_encoders")
Order = Callable[..., Request]

# Scores lie between 0 and 1.
ANY_LOSS = 1.0
CUT = "cutting documents into windows"


@pytest.fixture(scope="module")
def held_out(tmp_path_factory: pytest.TempPathFactory, pep_texts: list[str]) -> HeldOut:
    folder = tmp_path_factory.mktemp("held-out")
    judged = write_judged(folder / "claims", pep_texts, documents=45)
    labelled = write_labelled(folder / "topics.jsonl", pep_texts, each=60, words=12)
    return HeldOut([judged], [labelled])


@pytest.fixture(scope="module")
def order(text_file: Path, shallow_folder: Path, held_out: HeldOut) -> Order:
    def make(dest: Path, **settings: Any) -> Request:
        values: dict[str, Any] = {
            "source": str(shallow_folder),
            "dest": dest,
            "licence": "MIT",
            "max_tokens": 64,
            "calibration": text_file,
            "paragraphs": 200,
            "held_out": held_out,
            "precisions": ("fp16",),
        }
        return Request(**(values | settings))

    return make


@pytest.fixture(scope="module")
def steps() -> list[str]:
    return []


@pytest.fixture(scope="module")
def bundle(order: Order, tmp_path_factory: pytest.TempPathFactory, steps: list[str]) -> Bundle:
    """A bundle of both precisions. Any loss is allowed, because the encoder is random."""
    dest = tmp_path_factory.mktemp("bundles") / "tiny"

    def reported(step: str, share: float = 0.0, /) -> None:
        steps.append(f"{step}, {share:.0%}")

    def cut(*arguments: Any, **named: Any) -> list[list[Window]]:
        steps.append(CUT)
        return read(*arguments, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gate, "read", cut)
        patch.setitem(LIMITS, "retrieval", ANY_LOSS)
        patch.setitem(LIMITS, "probe", ANY_LOSS)
        run(order(dest, precisions=("fp16", "int8")), reported)
    return load(dest)


def test_the_manifest_holds_the_loss_of_each_graph(bundle: Bundle, steps: list[str]) -> None:
    for precision in bundle.manifest.precisions.values():
        retrieval, probe = precision.parity.tasks
        assert (retrieval.task, retrieval.data, retrieval.metric) == (
            "retrieval",
            "claims",
            "nDCG@10",
        )
        assert (retrieval.documents, retrieval.cases) == (45, 45)
        assert (probe.task, probe.data, probe.metric) == ("probe", "topics", "accuracy")
        assert (probe.documents, probe.cases) == (240, 120)
        # above chance, which is near 1 / 45 at ten places and 1 / 4
        assert retrieval.source > 0.2
        assert probe.source > 0.5
    fp16, int8 = (p.parity.tasks for p in bundle.manifest.precisions.values())
    assert [one.source for one in fp16] == [one.source for one in int8]
    assert [one.data_sha256 for one in fp16] == [one.data_sha256 for one in int8]
    for side in ("the source", "fp16", "int8"):
        assert f"retrieval on claims: encoding with {side}, 100%" in steps
        assert f"probe on topics: encoding with {side}, 100%" in steps


def test_the_documents_of_a_task_are_cut_once_for_all_graphs(
    bundle: Bundle, steps: list[str]
) -> None:
    assert len(bundle.manifest.precisions) == 2
    assert steps.count(CUT) == 2  # tasks


def test_fp16_is_within_the_real_limits(bundle: Bundle) -> None:
    for one in bundle.manifest.precisions["fp16"].parity.tasks:
        assert one.loss <= LIMITS[one.task] <= 0.01


def test_losses_do_not_change_the_revision(bundle: Bundle) -> None:
    bare = bundle.manifest.model_dump()
    for precision in bare["precisions"].values():
        assert precision["parity"].pop("tasks")
    assert Manifest.model_validate(bare).revision == bundle.manifest.revision


def test_inspect_prints_losses(
    bundle: Bundle, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["inspect", str(bundle.root)]) == 0
    lines = capsys.readouterr().out.splitlines()
    for name, precision in bundle.manifest.precisions.items():
        for one in precision.parity.tasks:
            told = (name, one.task, one.data, one.documents, one.cases, one.metric)
            figures = (f"{value:.4f}" for value in (one.graph, one.source, one.loss))
            row = [str(cell) for cell in (*told, *figures, one.threshold)]
            assert row in [re.sub(r"[^\w@.-]+", " ", line).split() for line in lines]


def options(held_out: HeldOut, source: Path, text_file: Path) -> list[str]:
    return [
        *("--source", str(source), "--calibration", str(text_file), "--paragraphs", "200"),
        *("--retrieval", str(held_out.retrieval[0]), "--probe", str(held_out.probe[0])),
    ]


def test_verify_repeats_losses(
    bundle: Bundle,
    shallow_folder: Path,
    text_file: Path,
    held_out: HeldOut,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    command = ["verify", str(bundle.root), *options(held_out, shallow_folder, text_file)]
    for task in LIMITS:
        monkeypatch.setitem(LIMITS, task, ANY_LOSS)
    assert main(command) == 0
    said = capsys.readouterr().out
    for name, precision in bundle.manifest.precisions.items():
        for one in precision.parity.tasks:
            assert f"{name}: {one} (the bundle says {one.graph:.4f} and {one.source:.4f})" in said


def forget_words(path: Path) -> None:
    """Make a graph know only three words and map every word to one of them."""
    model = onnx.load(path)
    tensor = max(model.graph.initializer, key=lambda t: np.prod(t.dims))
    weights = onnx.numpy_helper.to_array(tensor)
    few = weights[np.arange(len(weights)) % 3]
    tensor.CopyFrom(onnx.numpy_helper.from_array(few, tensor.name))
    onnx.save(model, path)


@pytest.fixture
def only_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow every cosine, so that only the tasks can refuse."""
    for limits in THRESHOLDS.values():
        for name in limits:
            monkeypatch.setitem(limits, name, -1)


LOST = (
    r"fp16 loses too much of the source; retrieval on claims: nDCG@10 0\.\d{4}, the source's "
    r"0\.\d{4}, a loss of 0\.\d{4}, but only 0\.005 is allowed; probe on topics: accuracy"
)


@pytest.mark.usefixtures("only_tasks")
def test_verify_names_the_refused_graph_and_its_figures(
    bundle: Bundle,
    shallow_folder: Path,
    text_file: Path,
    held_out: HeldOut,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = shutil.copytree(bundle.root, tmp_path / "worse")
    forget_words(folder / "model.fp16.onnx")
    fields = bundle.manifest.model_dump(exclude={"files", "revision"})
    seal(folder, **fields | {"precisions": {"fp16": bundle.manifest.precisions["fp16"]}})
    command = ["verify", str(folder), *options(held_out, shallow_folder, text_file)]
    # the bundle was made with other limits
    assert main(command) == 0
    usual = [f"--threshold=fp16.{name}={limit}" for name, limit in LIMITS.items()]
    assert main([*command, *usual]) == 1
    assert re.search(LOST, capsys.readouterr().err)


@pytest.mark.usefixtures("only_tasks")
def test_a_graph_with_a_large_loss_is_not_written(
    order: Order, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fuse = fp16.fuse

    def forget(source: Source, fp32: Path, batches: Sequence[Inputs], **options: Any) -> Fused:
        forget_words(fp32)
        return fuse(source, fp32, batches, **options)

    monkeypatch.setattr(fp16, "fuse", forget)
    with pytest.raises(ExportError, match=LOST):
        run(order(tmp_path / "bundle"))
    assert list(tmp_path.iterdir()) == []
    # The control: the same graph without held-out data passes.
    run(order(tmp_path / "bundle", held_out=HeldOut()))
    assert load(tmp_path / "bundle").manifest.precisions["fp16"].parity.tasks == []


def test_calibration_data_cannot_be_held_out(
    order: Order,
    held_out: HeldOut,
    text_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # so many that some are of the held-out documents
    monkeypatch.setattr(texts, "CALIBRATION", 64)
    corpus = (held_out.retrieval[0] / "corpus.jsonl").read_text().splitlines()
    documents = [json.loads(line)["text"] for line in corpus]
    both = tmp_path / "both.txt"
    both.write_text(
        "\n".join([text_file.read_text(encoding="utf-8"), *documents]), encoding="utf-8"
    )
    with pytest.raises(ExportError, match="claims: holds a passage that calibrates the int8 graph"):
        run(order(tmp_path / "bundle", calibration=both))
    assert list(tmp_path.iterdir()) == [both]


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def _change(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def _append(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\n")


@pytest.mark.parametrize("harm", [Path.unlink, _cut, _change, _append])
def test_every_missing_truncated_or_changed_file_is_named(
    bundle: Bundle, tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    names = sorted(bundle.manifest.files)
    assert names == ["model.fp16.onnx", "model.int8.bin", "model.int8.xml", "tokenizer.json"]
    for name in names:
        folder = shutil.copytree(bundle.root, tmp_path / name)
        load(folder)
        harm(folder / name)
        with pytest.raises(BundleError, match=re.escape(str(folder / name))):
            load(folder)


def test_a_file_changed_together_with_its_digest_is_refused(bundle: Bundle, tmp_path: Path) -> None:
    folder = shutil.copytree(bundle.root, tmp_path / "bundle")
    _change(folder / "model.int8.bin")
    manifest = json.loads((folder / MANIFEST).read_text())
    manifest["files"]["model.int8.bin"] = digest(folder / "model.int8.bin").model_dump()
    (folder / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(BundleError, match=r"bundle\.json: .*revision is not the hash"):
        load(folder)
    _cut(folder / MANIFEST)
    with pytest.raises(BundleError, match=r"bundle\.json: .*JSON"):
        load(folder)
