"""Indexes of documents: stored, filtered and searched in LanceDB."""

import importlib.util
import os
import sys
from typing import Any

from docsplit.engines.choice import detect


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


# LanceDB's Rust library writes plain lines to standard error, which would break a log of JSON
# lines. It reads this variable once, when it is imported. Its errors also arrive as exceptions.
os.environ.setdefault("LANCEDB_LOG", "off")

# By default it searches with two threads fewer than there are cores, so on two cores with one.
os.environ.setdefault("LANCE_CPU_THREADS", str(detect().cores))

# LanceDB imports this client of REST catalogues for a few types. The rest of it takes a third of
# the time of the import, and 14 MB.
postpone("lance_namespace_urllib3_client")
