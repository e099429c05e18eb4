"""A service that cannot import the modules that the variable ``WITHOUT`` names."""

from __future__ import annotations

import os
import sys


def main(arguments: list[str] | None = None) -> int:
    """Serve as ``docsplit-serve`` does."""
    # a module of this value cannot be imported or found
    sys.modules.update(dict.fromkeys(os.environ["WITHOUT"].split()))  # type: ignore[arg-type]
    from service import __main__ as service

    return service.main(arguments)


if __name__ == "__main__":
    sys.exit(main())
