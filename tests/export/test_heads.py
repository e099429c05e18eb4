"""Put heads into a bundle."""

from __future__ import annotations

import resource
import signal
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from docsplit.bundles.format import load, seal
from docsplit.bundles.manifest import BundleError
from docsplit.heads.network import Kind, Network
from export.errors import ExportError
from export.heads import add_head
from tests.export.test_bundle import fields

LABELS = ["a", "b", "c"]


def network(
    inputs: int = 4, outputs: int = 3, activation: Kind = "softmax", seed: int = 0
) -> Network:
    draw = np.random.default_rng(seed)

    def array(*shape: int) -> Any:
        return draw.standard_normal(shape).astype(np.float32)

    weights = (array(inputs, 8), array(8, outputs))
    return Network(weights, (array(8), array(outputs)), 1.7, activation)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "tokenizer.json").write_text("{}")
    (tmp_path / "model.fp16.onnx").write_bytes(b"graph")
    seal(tmp_path, **fields())
    return tmp_path


@pytest.mark.parametrize("activation", ["softmax", "sigmoid"])
def test_the_graph_returns_the_probabilities_of_the_network(root: Path, activation: Kind) -> None:
    made = network(activation=activation)
    revision = load(root).manifest.revision
    add_head(root, "topics", made, kind="classifier", labels=LABELS, report={"accuracy": 0.5})
    bundle = load(root)
    assert bundle.manifest.revision == revision
    head = bundle.manifest.heads["topics"]
    assert (head.activation, head.labels, head.report) == (activation, LABELS, {"accuracy": 0.5})
    session = onnxruntime.InferenceSession(
        bundle.path(head.file), providers=["CPUExecutionProvider"]
    )
    rows = np.random.default_rng(1).standard_normal((5, 4)).astype(np.float32)
    [found] = session.run(["probabilities"], {"features": rows})
    assert np.abs(found - made.probabilities(rows)).max() < 1e-5
    other = network(activation=activation, seed=1)
    assert np.abs(found - other.probabilities(rows)).max() > 1e-2
    sums = found.sum(axis=1)
    assert np.allclose(sums, 1) == (activation == "softmax")


def test_a_head_replaces_a_head_of_the_same_name(root: Path) -> None:
    for seed in (0, 1):
        made = network(seed=seed)
        add_head(root, "topics", made, kind="classifier", labels=LABELS, report={})
    add_head(root, "links", network(16, 2), kind="citation", labels=["no", "yes"], report={})
    bundle = load(root)
    assert set(bundle.manifest.heads) == {"topics", "links"}
    held = {f"heads/{path.name}" for path in (root / "heads").iterdir()}
    assert held == {head.file for head in bundle.manifest.heads.values()}


@pytest.mark.parametrize(
    ("name", "made", "labels", "reason"),
    [
        ("topics", network(5), LABELS, "5 values"),
        ("topics", network(), ["a", "b"], "3 labels"),
        ("../topics", network(), LABELS, "heads"),
        ("Topics", network(), LABELS, "heads"),
    ],
)
def test_a_head_that_does_not_fit_changes_nothing(
    root: Path, name: str, made: Network, labels: list[str], reason: str
) -> None:
    before = (root / "bundle.json").read_bytes()
    with pytest.raises(BundleError, match=reason):
        add_head(root, name, made, kind="classifier", labels=labels, report={})
    assert (root / "bundle.json").read_bytes() == before
    assert not (root / "heads").exists()


def test_a_network_that_is_not_finite_is_refused(root: Path) -> None:
    made = network()
    made.weights[1][0, 0] = np.nan
    with pytest.raises(ExportError, match="differs"):
        add_head(root, "topics", made, kind="classifier", labels=LABELS, report={})
    assert not load(root).manifest.heads


@pytest.mark.parametrize("room", [100, 1000])
def test_a_full_disk_leaves_the_bundle_as_it_was(root: Path, room: int) -> None:
    """Too little room for the graph, and for the manifest."""
    add_head(root, "topics", network(), kind="classifier", labels=LABELS, report={})
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    [(size, _)] = [(len(blob), path) for path, blob in before.items() if path.parent != root]
    assert size < 1000 < len(before[root / "bundle.json"])
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    former = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, limits[1]))
    try:
        for name, seed in (("topics", 0), ("topics", 1), ("more", 1)):
            made = network(seed=seed)
            with pytest.raises(OSError, match="too large"):
                add_head(root, name, made, kind="classifier", labels=LABELS, report={})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, former)
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before
