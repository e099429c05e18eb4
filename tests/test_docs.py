"""The documents against the code: every setting, route and metric, and README's own commands."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from service.settings import Settings
from tests.conftest import ROOT, Server, free_port, wait_ready


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_every_setting_is_documented() -> None:
    documented = re.findall(r"^\| `([a-z_]+)` \|", read("docs/settings.md"), re.MULTILINE)
    assert documented == list(Settings.model_fields)


def test_every_route_is_documented(server: Server) -> None:
    paths = httpx.get(f"{server.url}/openapi.json").json()["paths"]
    said = read("docs/api.md")
    for path, methods in paths.items():
        for method in methods:
            assert f"`{method.upper()} {path}`" in said


def test_every_metric_is_documented(server: Server) -> None:
    lines = httpx.get(f"{server.url}/metrics").text.splitlines()
    ours = {line.split()[2] for line in lines if line.startswith("# TYPE docsplit_")}
    documented = re.findall(r"^\| `(docsplit_[a-z_]+)` \|", read("docs/metrics.md"), re.MULTILINE)
    assert set(documented) == ours


@pytest.mark.parametrize(
    "name",
    [p.relative_to(ROOT).as_posix() for p in (ROOT / "docs").glob("*.md")]
    + ["README.md", "benchmarks/README.md", "studies/README.md"],
)
def test_links_lead_somewhere(name: str) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", read(name)):
        if not target.startswith("http"):
            assert (ROOT / name).parent.joinpath(target).exists(), target


@pytest.mark.parametrize("room", ["benchmarks", "studies"])
def test_the_table_of_a_room_lists_its_commands(room: str) -> None:
    listed = set(re.findall(r"`python -m ([\w.]+)", read(f"{room}/README.md")))
    commands = set()
    for path in (ROOT / room).rglob("*.py"):
        if 'if __name__ == "__main__":' in path.read_text(encoding="utf-8"):
            commands.add(".".join(path.relative_to(ROOT).with_suffix("").parts))
    # the two programs that run in the environment of a peer
    peers = {f"benchmarks.comparison.peers.{name}" for name in ("export_onnx", "plain_server")}
    assert listed == {name.removesuffix(".__main__") for name in commands - peers}


def test_ci_runs_the_test_command_of_the_readme() -> None:
    assert "make test" in shell_blocks()
    assert "\nmake test\n" in read(".ci/run")


def shell_blocks() -> list[str]:
    return [b.strip() for b in re.findall(r"```shell\n(.*?)```", read("README.md"), re.DOTALL)]


def test_the_commands_of_the_readme_run(tmp_path: Path) -> None:
    port = str(free_port())
    # what `make test ARGS=...` was given is not for `make serve`
    env = {k: v for k, v in os.environ.items() if k not in ("ARGS", "MAKEFLAGS", "MAKEOVERRIDES")}
    env |= {"VENV": sys.prefix, "DOCSPLIT_PORT": port, "DOCSPLIT_DRAIN_SECONDS": "0"}
    blocks = shell_blocks()
    assert blocks[0] == "make serve"
    log = tmp_path / "log"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            ["make", "serve"], cwd=ROOT, env=env, stderr=stream, start_new_session=True
        )
    try:
        wait_ready(Server(f"http://127.0.0.1:{port}", process, log))
        outputs = [
            subprocess.run(
                ["bash", "-euo", "pipefail", "-c", block.replace("8080", port)],
                cwd=ROOT,
                capture_output=True,
                text=True,
                check=True,
            ).stdout
            for block in blocks
            if not block.startswith("make")
        ]
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(30)
    assert [len(vector) for vector in json.loads(outputs[0])] == [384, 384]
    assert "'truncated': False" in outputs[1]
