"""The packages that pyproject.toml names, the workflow and CONTRIBUTING.md."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest
import yaml

from tests.conftest import ROOT

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
FOUND = PROJECT["tool"]["setuptools"]["packages"]["find"]["include"]
SHIPPED = [name.rstrip("*") for name in FOUND]
CHECKED = {"benchmarks", "tests"}
# a project of its own in client/
SEPARATE = {"docsplit_client"}


def test_every_package_of_the_repository_is_shipped_or_only_checked() -> None:
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert packages == {*SHIPPED, *CHECKED}


def test_every_package_is_checked_for_types_and_import_directions() -> None:
    assert set(PROJECT["tool"]["mypy"]["packages"]) == {*SHIPPED, *CHECKED, *SEPARATE}
    assert set(PROJECT["tool"]["importlinter"]["root_packages"]) == set(SHIPPED)


def test_coverage_measures_every_shipped_package() -> None:
    assert set(PROJECT["tool"]["coverage"]["run"]["source"]) == set(SHIPPED)
    assert PROJECT["tool"]["coverage"]["report"]["fail_under"] > 0


@pytest.mark.parametrize("package", SHIPPED)
def test_a_shipped_package_declares_its_types(package: str) -> None:
    assert (ROOT / package / "py.typed").is_file()
    assert "py.typed" in PROJECT["tool"]["setuptools"]["package-data"]["*"]


def test_the_workflow_runs_every_supported_python_version() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yaml").read_text())
    tested = workflow["jobs"]["test"]["strategy"]["matrix"]["python"]
    pattern = r"Programming Language :: Python :: (3\.\d+)"
    claimed = re.findall(pattern, "\n".join(PROJECT["project"]["classifiers"]))
    assert claimed
    assert set(claimed) <= set(tested)
    assert PROJECT["project"]["requires-python"] == f">={tested[0]}"


def test_the_hooks_run_the_checks_of_make_lint() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    tools = {hook["entry"].split()[0].rpartition("/")[2] for hook in hooks}
    [recipe] = re.findall(r"^lint:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert tools == set(re.findall(r"\$\(BIN\)/([\w-]+)", recipe))


def test_files_named_by_contributing_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([\w.-]+(?:/[\w.-]+)*(?:/|\.(?:py|md|toml|txt|yaml|json)))`", text))
    assert len(named) > 20
    # NAME stands for the name of a new file
    missing = [name for name in sorted(named) if not (ROOT / name.replace("NAME.py", "")).exists()]
    assert missing == []
