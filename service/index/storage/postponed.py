"""Postpones the code of a package until something asks for more than its modules."""

import importlib.util
import sys
from typing import Any


def postpone(name: str) -> None:
    """Run the ``__init__`` of a package when an attribute is missing, not at its import.

    Unlike with ``importlib.util.LazyLoader``, an import of one of its modules does not run it.

    Args:
        name: of a package that may be missing or imported already; then nothing changes.
    """
    spec = None if name in sys.modules else importlib.util.find_spec(name)
    if spec is None or (loader := spec.loader) is None:
        return
    package: Any = importlib.util.module_from_spec(spec)

    def load(attribute: str) -> object:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        del package.__getattr__
        loader.exec_module(package)
        return getattr(package, attribute)

    package.__getattr__ = load
    sys.modules[name] = package
