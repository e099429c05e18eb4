"""``docsplit-export inspect`` with the shipped bundle."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from docsplit.bundles.format import DEFAULT_BUNDLE
from export.__main__ import main


def test_inspect_prints_the_content(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["inspect", str(DEFAULT_BUNDLE)]) == 0
    said = capsys.readouterr().out
    manifest = json.loads((DEFAULT_BUNDLE / "bundle.json").read_text())
    for expected in (
        manifest["revision"],
        "384 dimensions, mean pooling",
        "512 tokens",
        "fp16",
        "6 Attention",
        "model.int8.bin",
        manifest["lineage"]["source"],
    ):
        assert expected in said
    assert "heads" not in said
    assert main(["inspect", str(DEFAULT_BUNDLE), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == manifest


def test_inspect_prints_ranges_and_they_do_not_change_the_revision(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    folder = shutil.copytree(DEFAULT_BUNDLE, tmp_path / "bundle", copy_function=os.link)
    manifest = json.loads((DEFAULT_BUNDLE / "bundle.json").read_text())
    manifest["precisions"]["fp16"]["ranges"] = {
        "passages": 256,
        "limit": 16376.0,
        "largest": 81234.0,
        "largest_at": "/layer.3/MatMul",
        "fp32_nodes": {
            "/layer.3/MatMul": {"kernel": "MatMul", "magnitude": 81234.0, "of": "activation"}
        },
    }
    (folder / "bundle.json").unlink()
    (folder / "bundle.json").write_text(json.dumps(manifest))
    assert main(["inspect", str(folder)]) == 0
    said = capsys.readouterr().out
    assert "largest activation 81,234.0 at /layer.3/MatMul, on 256 passages; 1 nodes" in said
    assert "/layer.3/MatMul (MatMul): activation of 81,234.0" in said
    assert main(["inspect", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == manifest


def test_a_truncated_bundle_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = shutil.copytree(DEFAULT_BUNDLE, tmp_path / "bundle", copy_function=os.link)
    (folder / "tokenizer.json").unlink()
    assert main(["inspect", str(folder)]) == 1
    assert "tokenizer.json: missing" in capsys.readouterr().err.replace("\n", "")
