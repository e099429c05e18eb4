"""The blocks of the guide run, one after the other, and print what it shows."""

from __future__ import annotations

import re
from contextlib import redirect_stdout
from importlib.util import find_spec
from io import StringIO
from typing import Any

import pytest

from tests.conftest import ROOT, Server

IMPORTED = r"^from (haystack|llama_index)\b"
GUIDES = ["docs/how-to/clients.md", "docs/how-to/frameworks.md"]


@pytest.mark.parametrize("name", GUIDES)
def test_the_blocks_print_what_the_guide_shows(name: str, server: Server) -> None:
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", (ROOT / name).read_text("utf-8"), re.M | re.S)
    names: dict[str, Any] = {}
    printed: str | None = None
    compared = 0
    for language, block in blocks:
        if language == "python":
            # frameworks that are not installed
            missing = any(find_spec(root) is None for root in re.findall(IMPORTED, block, re.M))
            printed = None if missing else run(block, name, server, names)
        elif language == "text" and printed is not None:
            assert printed == block
            compared += 1
    assert compared > 0
    names["client"].close()


def run(block: str, page: str, server: Server, names: dict[str, Any]) -> str:
    """Run a block with the names of the blocks before it; what it prints."""
    out = StringIO()
    with redirect_stdout(out):
        code = block.replace("http://localhost:8080", server.url)
        exec(compile(code, page, "exec"), names)
    return out.getvalue()
