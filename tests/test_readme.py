"""The commands of the README and the tutorial, and the answers that these pages show.

A page's ``shell`` blocks run one after the other, in a folder that looks like a fresh clone after
``make serve``. A ``json`` block shows the last line of their output. A ``text`` block shows the end
of the output.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT, Server, free_port, wait_ready
from tests.export.conftest import pep_texts, save_bert  # noqa: F401

README, TUTORIAL = "README.md", "docs/tutorial/index.md"
# int8, bf16 and f32 differ by this much in the numbers of an answer
NEAR = 0.03
# files that runs leave in a working copy
LEFT = {".venv", ".git", ".cache", "data", "runs"}
# files that the Makefile leaves after setting up an environment
STAMPS = {".serve", ".dev"}


def blocks(page: str) -> list[tuple[str, str]]:
    """Language and text of a page's fenced blocks, in order."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(r"^```(\w*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def same(shown: Any, got: Any) -> bool:
    """Whether an answer matches the page's: numbers approximately, and anything for "…"."""
    if isinstance(shown, dict):
        return shown.keys() == got.keys() and all(same(shown[key], got[key]) for key in shown)
    if isinstance(shown, list):
        return len(shown) == len(got) and all(map(same, shown, got))
    if isinstance(shown, float):
        return bool(shown == pytest.approx(got, abs=NEAR))
    return shown in (got, "…")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The repository's files, with this run's environment in the place of ``make serve``'s."""
    for path in ROOT.iterdir():
        if path.name not in LEFT:
            (tmp_path / path.name).symlink_to(path)
    environment = tmp_path / ".venv"
    environment.mkdir()
    for path in Path(sys.prefix).iterdir():
        if path.name not in STAMPS:
            (environment / path.name).symlink_to(path)
    # newer than the files it depends on, so that make installs nothing
    for name in STAMPS:
        (environment / name).touch()
    return tmp_path


@contextmanager
def started(block: str, clone: Path, env: dict[str, str]) -> Iterator[None]:
    """Run ``make serve``, wait until it is ready, end it afterwards."""
    log = clone / "log"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            ["bash", "-c", block], cwd=clone, env=env, stderr=stream, start_new_session=True
        )
    try:
        wait_ready(Server(f"http://127.0.0.1:{env['DOCSPLIT_PORT']}", process, log))
        yield
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(30)


def run(page: str, clone: Path) -> None:
    port = str(free_port())
    # the arguments of `make test ARGS=...` are not for `make serve`
    env = {k: v for k, v in os.environ.items() if k not in ("ARGS", "MAKEFLAGS", "MAKEOVERRIDES")}
    env |= {"DOCSPLIT_PORT": port, "DOCSPLIT_DRAIN_SECONDS": "0", "DOCSPLIT_CALIBRATE": "0"}
    said = ""
    with ExitStack() as service:
        for language, block in blocks(page):
            if language == "json":
                answer = said.splitlines()[-1]
                assert same(json.loads(block), json.loads(answer)), answer
            elif language == "text":
                assert said.endswith(block)
            elif language == "shell":
                *commands, last = block.strip().splitlines()
                if last.startswith("make serve"):
                    service.close()
                else:
                    commands.append(last)
                ended = subprocess.run(
                    ["bash", "-euo", "pipefail", "-c", "\n".join(commands).replace("8080", port)],
                    cwd=clone,
                    env=env,
                    capture_output=True,
                    text=True,
                    check=False,
                )
                assert ended.returncode == 0, ended.stderr
                said = ended.stdout
                if last.startswith("make serve"):
                    service.enter_context(started(last, clone, env))


def test_the_commands_of_the_readme_run(clone: Path, request: pytest.FixtureRequest) -> None:
    assert blocks(README)[0] == ("shell", "make serve\n")
    # like ``word_folder`` of the tests of export, but with one layer: the command is tested there
    texts = request.getfixturevalue("pep_texts")
    save_bert(clone / "my-encoder", texts, num_hidden_layers=1, initializer_range=0.02)
    run(README, clone)


def test_the_commands_of_the_tutorial_run(clone: Path) -> None:
    run(TUTORIAL, clone)


def test_a_wrong_answer_is_noticed() -> None:
    shown = [{"id": "pep-1", "score": 0.5}]
    assert same(shown, [{"id": "pep-1", "score": 0.51}])
    for wrong in ([], [{"id": "pep-2", "score": 0.5}], [{"id": "pep-1", "score": 0.54}]):
        assert not same(shown, wrong)


def test_pages_print_only_commands_that_run() -> None:
    for page in (README, TUTORIAL):
        assert {language for language, _ in blocks(page)} <= {"shell", "json", "text"}
        assert len(blocks(page)) > 4
