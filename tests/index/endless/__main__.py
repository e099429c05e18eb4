"""A service whose commits never end, and whose stop waits for them a short time."""

from __future__ import annotations

import asyncio
import sys
from typing import NoReturn

from service import __main__ as service
from service.index import commits
from service.server import app


async def endless(*_: object) -> NoReturn:
    """Run until it is cancelled."""
    while await asyncio.sleep(0.001, True):
        pass
    raise AssertionError


def main(arguments: list[str] | None = None) -> int:
    """Serve as ``docsplit-serve`` does."""
    commits.write = endless  # type: ignore[assignment]
    app.STOP_SECONDS = 0.5
    return service.main(arguments)


if __name__ == "__main__":
    sys.exit(main())
