"""A bundle whose exporting user accepted that it misses a threshold."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import httpx

from docsplit.bundles.format import DEFAULT_BUNDLE
from tests.conftest import serving

MISSED = "cosine_mean 0.9944000 is below 0.995"


def test_info_and_the_log_name_what_a_bundle_misses(tmp_path: Path) -> None:
    folder = shutil.copytree(DEFAULT_BUNDLE, tmp_path / "bundle", copy_function=os.link)
    manifest = json.loads((folder / "bundle.json").read_text())
    manifest["precisions"]["int8"]["accepted"] = [MISSED]
    (folder / "bundle.json").unlink()
    (folder / "bundle.json").write_text(json.dumps(manifest))
    with serving(tmp_path / "log", "--bundle", str(folder)) as server:
        found = httpx.get(f"{server.url}/info").json()["precisions"]
    assert {name: one["accepted"] for name, one in found.items()} == {"fp16": [], "int8": [MISSED]}
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    [warned] = [line for line in lines if line["event"] == "thresholds_missed"]
    assert (warned["level"], warned["precision"], warned["accepted"]) == (
        "warning",
        "int8",
        [MISSED],
    )
