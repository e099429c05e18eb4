"""The documents, compared with the code: every setting, route and metric, and every link."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from service.settings import Settings
from tests.conftest import ROOT, Server

_ROOMS = ("README.md", "CONTRIBUTING.md", "benchmarks/README.md", "findings/README.md")
PAGES = [*_ROOMS, *(p.relative_to(ROOT).as_posix() for p in (ROOT / "docs").rglob("*.md"))]


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_every_setting_is_documented() -> None:
    documented = re.findall(r"^\| `([a-z_]+)` \|", read("docs/reference/settings.md"), re.MULTILINE)
    assert documented == list(Settings.model_fields)


def test_every_route_is_documented(light_server: Server) -> None:
    paths = httpx.get(f"{light_server.url}/openapi.json", timeout=60).json()["paths"]
    said = read("docs/reference/api/index.md")
    for path, methods in paths.items():
        for method in methods:
            assert f"`{method.upper()} {path}`" in said


def test_every_metric_is_documented(light_server: Server) -> None:
    lines = httpx.get(f"{light_server.url}/metrics").text.splitlines()
    ours = {line.split()[2] for line in lines if line.startswith("# TYPE docsplit_")}
    said = read("docs/reference/metrics.md")
    documented = re.findall(r"^\| `(docsplit_[a-z_]+)` \|", said, re.MULTILINE)
    assert set(documented) == ours


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name: str) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", read(name)):
        if not target.startswith("http"):
            assert (ROOT / name).parent.joinpath(target).exists(), target


@pytest.mark.parametrize("name", PAGES)
def test_files_and_modules_named_by_a_page_exist(name: str) -> None:
    text = read(name)
    for path in re.findall(r"`((?:\w+/)+\w+\.(?:py|yaml|md|sh))`", text):
        assert (ROOT / path).exists(), path
    for module in re.findall(r"python -m ((?:benchmarks|training|service)[\w.]*)", text):
        path = ROOT / module.replace(".", "/")
        assert path.is_dir() or path.with_suffix(".py").is_file(), module


def test_pages_named_by_other_files_exist() -> None:
    rooms = {p for p in ROOT.iterdir() if p.name[0] != "." and p.name not in ("data", "runs")}
    suffixes = {".py", ".yaml", ".yml", ".md", ".cfg", ".conf", ".toml", ".tpl"}
    files = [p for room in rooms | {ROOT / ".github"} for p in room.rglob("*")]
    files += [p for p in rooms if p.is_file()]
    named = {
        page
        for path in files
        if path.suffix in suffixes or path.name in ("Dockerfile", "Makefile")
        for page in re.findall(r"\bdocs/[\w/-]+\.md", path.read_text(encoding="utf-8"))
    }
    assert len(named) > 15
    assert [page for page in sorted(named) if not (ROOT / page).exists()] == []


def test_the_table_of_benchmarks_lists_its_commands() -> None:
    listed = set(re.findall(r"`python -m ([\w.]+)", read("benchmarks/README.md")))
    commands = set()
    for path in (ROOT / "benchmarks").rglob("*.py"):
        if 'if __name__ == "__main__":' in path.read_text(encoding="utf-8"):
            commands.add(".".join(path.relative_to(ROOT).with_suffix("").parts))
    # the two programs that run in another package's environment
    peers = {f"benchmarks.comparison.peers.{name}" for name in ("export_onnx", "plain_server")}
    assert listed == {name.removesuffix(".__main__") for name in commands - peers}


def test_the_table_of_findings_lists_its_scripts() -> None:
    listed = re.findall(
        r"^\| \[[\w.-]+\]\(([\w.-]+\.sh)\)", read("findings/README.md"), re.MULTILINE
    )
    assert sorted(listed) == sorted(path.name for path in (ROOT / "findings").glob("*.sh"))


def test_help_of_the_environments_of_peers_names_them() -> None:
    module = "benchmarks.comparison.peers.environments"
    asked = [sys.executable, "-m", module]
    made = subprocess.run([*asked, "--help"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "optimum" in made.stdout
    for wrong in ([], ["nope"]):
        made = subprocess.run([*asked, *wrong], cwd=ROOT, capture_output=True, text=True)
        assert made.returncode == 2
        assert "error: " in made.stderr.splitlines()[-1]


def test_ci_runs_the_test_command_of_the_readme() -> None:
    assert "`make test`" in read("README.md")
    assert "\nmake test\n" in read(".ci/run")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as by `make docs`: strictly, so that every link leads somewhere."""
    folder = tmp_path_factory.mktemp("site")
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        check=True,
    )
    return folder


def test_the_site_has_every_page_and_loads_nothing_from_elsewhere(site: Path) -> None:
    pages = {p.relative_to(ROOT / "docs").with_suffix("") for p in (ROOT / "docs").rglob("*.md")}
    built = {path.relative_to(site).with_suffix("") for path in site.rglob("*.html")}
    # and the card of the shipped bundles, from models
    assert pages | {Path("reference/models")} == built - {Path("404")}
    loaded = re.compile(r"<(?:script|img|iframe)[^>]* src=\"?https?:|<link[^>]* href=\"?https?:")
    for path in site.rglob("*.html"):
        assert not loaded.search(path.read_text(encoding="utf-8")), path
