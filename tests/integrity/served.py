"""Prints for each store one line with the wrong answers of its indexes."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path

from tests.integrity import stores


async def served(root: Path) -> list[str]:
    wrong = []
    for name in ("x", "y"):
        try:
            index = await (await stores.open_indexes(root)).open(name)
        except (RuntimeError, ValueError):
            continue
        wrong += await stores.wrong_answers(index, stores.names(name))
    return wrong


def main(places: Sequence[str]) -> None:
    """Print the lines."""
    for place in places:
        with redirect_stdout(sys.stderr):
            found = asyncio.run(served(Path(place)))
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()
