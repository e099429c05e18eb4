"""The client is a project of its own and imports nothing from the service."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

from tests.conftest import ROOT

FOLDER = ROOT / "client"
PACKAGE = FOLDER / "docsplit_client"
PROJECT = tomllib.loads((FOLDER / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SERVICE = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# packages whose modules have another name
MODULES = {"haystack-ai": "haystack", "llama-index-core": "llama_index"}


def imported() -> set[str]:
    """The packages that the client imports."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {name.name.partition(".")[0] for name in node.names}
            elif isinstance(node, ast.ImportFrom):
                found.add((node.module or "").partition(".")[0])
    return found


def test_it_imports_only_what_it_requires() -> None:
    extras = PROJECT["optional-dependencies"].values()
    named = [*PROJECT["dependencies"], *(name for extra in extras for name in extra)]
    packages = {re.split("[>=]", name)[0] for name in named}
    required = {MODULES.get(name, name.replace("-", "_")) for name in packages}
    assert imported() - sys.stdlib_module_names == required | {"docsplit_client"}


def test_it_has_the_version_and_the_licence_of_the_service() -> None:
    for name in ("version", "license", "requires-python"):
        assert PROJECT[name] == SERVICE[name]
    assert (FOLDER / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


def test_its_wheel_has_every_module(tmp_path: Path) -> None:
    # setuptools leaves folders next to the sources
    copy = shutil.copytree(FOLDER, tmp_path / "client")
    build = "from setuptools.build_meta import build_wheel; build_wheel('..')"
    subprocess.run([sys.executable, "-W", "ignore", "-c", build], cwd=copy, check=True)
    [wheel] = tmp_path.glob("*.whl")
    modules = {path.relative_to(FOLDER).as_posix() for path in PACKAGE.rglob("*.py")}
    assert {*modules, "docsplit_client/py.typed"} <= {*zipfile.ZipFile(wheel).namelist()}
