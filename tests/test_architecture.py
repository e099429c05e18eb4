"""The rooms and the walk in docs/explanation/architecture.md, compared with the code."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache

import pytest

from tests.conftest import ROOT

PAGE = ROOT / "docs" / "explanation" / "architecture.md"
MOST = 12
# modules of ours that the module of /embed may import
MOST_MODULES = 60


def walk() -> list[str]:
    return re.findall(r"^\d+\. `([\w/]+\.py)`", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """All statements in a node; their expressions, most of a file, hold none."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield child
            yield from statements(child)


@cache
def imports(name: str) -> set[str]:
    """The project's files that a file imports."""
    found = set()
    for node in statements(ast.parse((ROOT / name).read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            path = node.module.replace(".", "/")
            found |= {f"{path}.py", *(f"{path}/{each.name}.py" for each in node.names)}
    return found


def strangers(names: list[str]) -> list[str]:
    """Files that no earlier file imports, and that import no earlier file."""
    return [
        name
        for position, name in enumerate(names)
        if position
        and not any(name in imports(before) for before in names[:position])
        and not imports(name) & set(names[:position])
    ]


def test_the_walk_follows_the_imports() -> None:
    assert 10 < len(walk()) <= MOST
    assert walk()[0] == "service/server/app.py"
    assert strangers(walk()) == []


def test_the_module_of_embed_imports_few_of_ours() -> None:
    code = "import sys, service.server.routes.embed; print(*sys.modules)"
    said = subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, text=True)
    ours = {"docsplit", "features", "service"}
    found = [name for name in said.split() if name.split(".")[0] in ours]
    assert "service.server.edge.layer" in found
    assert len(found) <= MOST_MODULES, sorted(found)


def test_a_stranger_in_the_walk_is_noticed() -> None:
    assert strangers([*walk()[:3], "service/index/leases.py"]) == ["service/index/leases.py"]


def test_the_table_has_every_package() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    packages = settings["tool"]["importlinter"]["root_packages"]
    table = re.findall(
        r"^\| `([\w/]+)` \| [^|]* \| [^|]* \|", PAGE.read_text("utf-8"), re.MULTILINE
    )
    assert {name.split("/")[0] for name in table} == set(packages)
    assert all((ROOT / name).is_dir() for name in table)


@pytest.mark.parametrize("name", ["service"])
def test_the_layers_name_packages_that_exist(name: str) -> None:
    named = re.findall(rf"`({name}/\w+)`", PAGE.read_text(encoding="utf-8"))
    assert named
    assert all((ROOT / each).is_dir() for each in named)
