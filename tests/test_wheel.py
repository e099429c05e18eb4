"""The wheel works outside the clone: the library, the service and the default bundle are in it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.conftest import ROOT, serving

PACKAGES = ("docsplit", "export", "features", "service", "training")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the wheel is installed."""
    source, site = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("site")
    for package in PACKAGES:
        # the bundle is large, and the build only reads it
        shutil.copytree(
            ROOT / package,
            source / package,
            copy_function=os.link,
            ignore=shutil.ignore_patterns("__pycache__"),
        )
    for name in ("pyproject.toml", "README.md", "LICENSE", "NOTICE"):
        shutil.copy(ROOT / name, source)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    build = ["wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(site), str(source)]
    subprocess.run([*pip, *build], check=True)
    [wheel] = site.glob("docsplit-*.whl")
    subprocess.run([*pip, "install", "--no-deps", "--target", str(site), str(wheel)], check=True)
    return site


def test_the_library_embeds(site: Path) -> None:
    code = "import docsplit; print(docsplit.__file__, docsplit.Encoder().embed(['A text.']).shape)"
    said = subprocess.check_output([sys.executable, "-c", code], cwd=site, text=True)
    assert said == f"{site}/docsplit/__init__.py (1, 384)\n"


def test_the_service_starts(site: Path, tmp_path: Path) -> None:
    with serving(tmp_path / "log", tree=site) as server:
        answer = httpx.post(f"{server.url}/embed", json={"inputs": "A text."}, timeout=60)
        assert len(answer.json()[0]) == 384
        # the page's files are in the wheel, too
        page = httpx.get(server.url, headers={"accept": "text/html"}, timeout=60)
        assert "<title>" in page.text
