"""Rooms and their layers: import-linter checks the contracts in pyproject.toml."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.conftest import ROOT

ROOMS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"][
    "importlinter"
]["root_packages"]

# modules, their text, the contract that each breaks, and how the report says so
MISPLACED = {
    "service/shelf.py": ("", "inside the service", "service.shelf"),
    "service/index/shelf.py": ("", "inside the index", "service.index.shelf"),
    "service/index/rows/shelf.py": (
        "import service.server.app",
        "inside the service",
        "service.index.rows.shelf -> service.server.app",
    ),
    "docsplit/heads/shelf.py": (
        "import service.settings",
        "and scikit-learn",
        "docsplit.heads.shelf -> service.settings",
    ),
    "docsplit/corpora/shelf.py": (
        "import docsplit.bundles.manifest",
        "readers of documents",
        "docsplit.corpora.shelf -> docsplit.bundles.manifest",
    ),
    "docsplit/extraction/readers/shelf.py": (
        "import numpy",
        "extraction stays small",
        "docsplit.extraction.readers.shelf -> numpy",
    ),
    "service/index/query/shelf.py": (
        "import features.maps.areas",
        "never imports features",
        "service.index.query.shelf -> features.maps.areas",
    ),
    "service/keys/shelf.py": (
        "import export.errors",
        "without torch",
        "service.keys.shelf -> export.errors",
    ),
}


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name("lint-imports")
    return subprocess.run(
        [program, "--no-cache"], cwd=folder, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rooms")
    shutil.copy(ROOT / "pyproject.toml", folder)
    for room in ROOMS:
        shutil.copytree(ROOT / room, folder / room, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def test_the_contracts_hold(copy: Path) -> None:
    result = lint(copy)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.fixture(scope="module")
def broken(copy: Path) -> dict[str, str]:
    """What is said of each broken contract when all of ``MISPLACED`` are there."""
    for module, (text, *_) in MISPLACED.items():
        (copy / module).write_text(text, encoding="utf-8")
    try:
        result = lint(copy)
    finally:
        for module in MISPLACED:
            (copy / module).unlink()
    assert result.returncode != 0
    said = result.stdout.partition("\nBroken contracts\n")[2]
    parts = re.split(r"^(.+)\n-{3,}\n", said, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize("module", MISPLACED)
def test_a_module_in_the_wrong_room_breaks_a_contract(broken: dict[str, str], module: str) -> None:
    _, contract, fault = MISPLACED[module]
    [said] = [said for name, said in broken.items() if contract in name]
    assert f" {fault}\n" in said.replace(" (l.1)", "")
