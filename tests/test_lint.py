"""The slower checks of `make lint`; `make test` runs them beside other tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT


@pytest.mark.parametrize("program", ["mypy", "lint-imports"])
def test_types_and_import_directions(program: str) -> None:
    command = [str(Path(sys.executable).with_name(program))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
