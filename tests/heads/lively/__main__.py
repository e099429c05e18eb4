"""A service whose trainings in the background report and look for their end often."""

from __future__ import annotations

import sys

from service import __main__ as service
from service.jobs import runner


def main(arguments: list[str] | None = None) -> int:
    """Serve as ``docsplit-serve`` does."""
    runner.HEARTBEAT_SECONDS = 0.3
    return service.main(arguments)


if __name__ == "__main__":
    sys.exit(main())
