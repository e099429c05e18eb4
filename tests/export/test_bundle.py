"""The bundle format: a sealed bundle can be read, a changed bundle is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from docsplit.bundles.format import Bundle, load, seal
from docsplit.bundles.manifest import BundleError, Manifest, Parity, Precision, WindowWeights

PARITY = Parity(
    paragraphs=200,
    cosine_mean=1.0,
    cosine_min=1.0,
    neighbour_agreement=1.0,
    engine="none",
    thresholds={},
)


FORM: dict[str, Any] = {
    "runtime": "onnx",
    "file": "model.fp16.onnx",
    "kernels": {},
    "parity": PARITY.model_dump(),
}
TOPICS: dict[str, Any] = {
    "file": "heads/topics.onnx",
    "kind": "classifier",
    "activation": "softmax",
    "labels": ["a", "b"],
    "report": {},
}


def fields(**changes: Any) -> dict[str, Any]:
    return {
        "name": "test",
        "dimensions": 4,
        "pooling": "mean",
        "max_tokens": 16,
        "pad_token_id": 0,
        "precisions": {
            "fp16": Precision(runtime="onnx", file="model.fp16.onnx", kernels={}, parity=PARITY)
        },
        "licence": "Apache-2.0",
        "lineage": {"source": "s", "source_sha256": "0" * 64, "settings": {}, "packages": {}},
        **changes,
    }


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "bundle"
    (folder / "heads").mkdir(parents=True)
    (folder / "tokenizer.json").write_text("{}")
    (folder / "model.fp16.onnx").write_bytes(b"graph" * 100)
    (folder / "heads" / "topics.onnx").write_bytes(b"head")
    return folder


def rewrite(root: Path, **changes: Any) -> None:
    path = root / "bundle.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_a_sealed_bundle_loads(root: Path) -> None:
    manifest = seal(root, **fields(prompts={"query": "query: "}, heads={"topics": TOPICS}))
    bundle = load(root)
    assert isinstance(bundle, Bundle)
    assert bundle.manifest == manifest
    assert set(manifest.files) == {"tokenizer.json", "model.fp16.onnx", "heads/topics.onnx"}
    assert bundle.graph("fp16").read_bytes() == b"graph" * 100
    assert bundle.path("heads/topics.onnx").is_absolute()


def test_a_missing_graph_is_named(root: Path) -> None:
    seal(root, **fields())
    bundle = load(root)
    with pytest.raises(BundleError, match=r"no int8 graph .* fp16"):
        bundle.graph("int8")
    (root / "stranger.bin").write_bytes(b"")
    with pytest.raises(BundleError, match="stranger"):
        bundle.path("stranger.bin")


@pytest.mark.parametrize("verify", [True, False])
def test_a_truncated_file_is_refused(root: Path, verify: bool) -> None:
    seal(root, **fields())
    (root / "model.fp16.onnx").write_bytes(b"graph" * 99)
    with pytest.raises(BundleError, match=r"model\.fp16\.onnx: 495 bytes, .* 500"):
        load(root, verify=verify)


def test_a_changed_file_is_refused_if_verified(root: Path) -> None:
    seal(root, **fields())
    (root / "model.fp16.onnx").write_bytes(b"grapH" * 100)
    with pytest.raises(BundleError, match=r"model\.fp16\.onnx: content differs"):
        load(root)
    load(root, verify=False)


def test_a_missing_file_is_refused(root: Path) -> None:
    seal(root, **fields())
    (root / "tokenizer.json").unlink()
    with pytest.raises(BundleError, match=r"tokenizer\.json: missing"):
        load(root)


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", "heads/../../outside", "a\\b"])
def test_a_path_outside_the_bundle_is_refused(root: Path, name: str) -> None:
    seal(root, **fields())
    files = json.loads((root / "bundle.json").read_text())["files"]
    (root.parent / "outside").write_bytes(b"")
    rewrite(root, files=files | {name: {"sha256": "0" * 64, "bytes": 0}})
    with pytest.raises(BundleError, match="not a path inside"):
        load(root)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"revision": "f" * 64}, "manifest: revision is not the hash"),
        ({"max_tokens": 17}, "revision is not the hash"),
        ({"pooling": "cls"}, "revision is not the hash"),
        ({"window_weights": {"first": 2.0}}, "revision is not the hash"),
        ({"window_weights": {"first": 0.0}}, "window_weights"),
        ({"window_weights": {"first": 17.0}}, "window_weights"),
        ({"window_weights": {"unit": "words"}}, "window_weights"),
        ({"surprise": 1}, "surprise: Extra inputs"),
        ({"format": 2}, "format"),
        ({"pooling": "median"}, "pooling"),
        ({"normalised": False}, "normalised"),
        ({"name": "a name/with slash"}, "name"),
        ({"precisions": {}}, "at least one precision"),
        ({"default_prompt": "query"}, "not among the prompts"),
        ({"heads": {"topics": TOPICS | {"file": "heads/other.onnx"}}}, r"heads/other\.onnx"),
        ({"heads": {"../up": TOPICS}}, "heads"),
        # the next training of the head would delete the file
        ({"heads": {"topics": TOPICS | {"file": "tokenizer.json"}}}, "is not below heads"),
        ({"precisions": {"fp16": FORM | {"file": "heads/topics.onnx"}}}, "is among the heads"),
        ({"heads": {"topics": TOPICS | {"labels": ["one"]}}}, "labels"),
    ],
)
def test_a_contradictory_manifest_is_refused(
    root: Path, changes: dict[str, Any], reason: str
) -> None:
    seal(root, **fields())
    rewrite(root, **changes)
    with pytest.raises(BundleError, match=reason):
        load(root)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_figure_that_is_not_finite_is_refused(root: Path, value: float) -> None:
    seal(root, **fields())
    precisions = json.loads((root / "bundle.json").read_text())["precisions"]
    precisions["fp16"]["parity"]["cosine_mean"] = value
    rewrite(root, precisions=precisions)
    with pytest.raises(BundleError, match=r"bundle\.json: .*cosine_mean.* finite"):
        load(root)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '"text"', "\x00", "[" * 100_000])
def test_an_invalid_manifest_is_refused(root: Path, text: str) -> None:
    (root / "bundle.json").write_text(text)
    with pytest.raises(BundleError, match=r"bundle\.json"):
        load(root)


def test_a_folder_without_manifest_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"is .* a bundle"):
        load(tmp_path)
    with pytest.raises(BundleError, match=r"bundle\.json"):
        load(tmp_path / "absent")


def test_the_revision_depends_only_on_what_changes_vectors(root: Path) -> None:
    first = seal(root, **fields()).revision
    assert seal(root, **fields(name="renamed", licence="MIT")).revision == first
    assert seal(root, **fields(heads={"topics": TOPICS})).revision == first
    (root / "heads" / "topics.onnx").write_bytes(b"another head")
    assert seal(root, **fields(heads={"topics": TOPICS})).revision == first
    assert (
        seal(root, **fields(window_weights=WindowWeights(unit="tokens", first=1.0))).revision
        == first
    )
    assert seal(root, **fields(window_weights=WindowWeights(unit="letters"))).revision != first
    assert seal(root, **fields(window_weights=WindowWeights(first=2.0))).revision != first
    assert seal(root, **fields(max_tokens=8)).revision != first
    assert seal(root, **fields(prompts={"query": "q: "})).revision != first
    (root / "tokenizer.json").write_text("{ }")
    assert seal(root, **fields()).revision != first


def test_a_seal_without_its_graph_is_refused(root: Path) -> None:
    (root / "model.fp16.onnx").unlink()
    with pytest.raises(BundleError, match=r"model\.fp16\.onnx"):
        seal(root, **fields())
    assert not (root / "bundle.json").exists()


def test_the_manifest_is_closed_and_frozen(root: Path) -> None:
    manifest = seal(root, **fields())
    assert Manifest.model_validate_json(manifest.model_dump_json()) == manifest
    with pytest.raises(ValueError, match="frozen"):
        manifest.name = "other"


def test_the_format_needs_no_heavy_library() -> None:
    code = (
        "import sys, docsplit.bundles.format; "
        "print(sorted({'torch', 'numpy', 'onnx', 'onnxruntime', 'openvino', 'nncf', "
        "'transformers'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
