"""The blocks of the guide run, one after the other, and print what it shows."""

from __future__ import annotations

import re
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

import pytest

from tests.conftest import ROOT, Server

GUIDES = ["docs/how-to/clients.md"]


@pytest.mark.parametrize("name", GUIDES)
def test_the_blocks_print_what_the_guide_shows(name: str, server: Server) -> None:
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", (ROOT / name).read_text("utf-8"), re.M | re.S)
    names: dict[str, Any] = {}
    printed = None
    for language, block in blocks:
        if language == "python":
            out = StringIO()
            with redirect_stdout(out):
                code = block.replace("http://localhost:8080", server.url)
                exec(compile(code, name, "exec"), names)
            printed = out.getvalue()
        elif language == "text":
            assert printed == block
    assert printed is not None
    names["client"].close()
