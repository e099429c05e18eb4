"""What the service can do without: files, maps, the page, MCP and Ray.

Each feature is a folder ``features/NAME``. Its module ``feature`` names a subclass of ``Feature``
as ``FEATURE``. The core imports none of them: it looks here for the modules by name, so that a
folder can be left out, and a package that only a feature needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar

from docsplit.extraction.kinds import PACKAGES
from service.errors import NotFoundError

if TYPE_CHECKING:
    from fastapi import APIRouter
    from starlette.types import ASGIApp

    from service.server.lifecycle import Service


@dataclass(frozen=True, slots=True)
class Known:
    """What the core knows of a feature, whether it is there or not.

    Attributes:
        remedy: how the operator gets it.
        paths: of its routes, which answer 404 without it.
        needs: modules of packages that the core does not need.
    """

    remedy: str
    paths: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()


KNOWN = {
    "files": Known(
        "pip install 'docsplit[files]'",
        ("/read", "/indexes/{name}/files"),
        (*PACKAGES, "python_multipart"),
    ),
    "maps": Known(
        "pip install 'docsplit[map]'",
        ("/indexes/{name}/map", "/indexes/{name}/topics"),
        ("openTSNE",),
    ),
    "page": Known("put the folder features/page back", ("/", "/docs")),
    "mcp": Known("pip install 'docsplit[mcp]'", ("/mcp",), ("mcp",)),
    "ray": Known("pip install 'docsplit[ray]'", (), ("ray",)),
}


class MissingError(NotFoundError, code="feature_missing"):
    """A feature is not installed."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"the feature {name!r} is not installed here: the operator can {KNOWN[name].remedy}"
        )


class Feature:
    """A feature in one process: it makes its parts when it is made.

    Attributes:
        service: the core. Settings of features are among its settings, so that one file of
            settings suits services with and without a feature.
    """

    name: ClassVar[str]

    def __init__(self, service: Service) -> None:
        self.service = service

    @staticmethod
    def routers() -> Sequence[APIRouter]:
        """Its routes; all services of a process share them."""
        return ()

    def inner(self, app: ASGIApp) -> ASGIApp:
        """The routes, with what it puts before them, behind keys, limits and deadlines."""
        return app

    def outer(self, app: ASGIApp) -> ASGIApp:
        """The application, with what it answers before anything checks a key or a body."""
        return app

    async def start(self) -> None:
        """Begin, before the first request."""

    async def stop(self) -> None:
        """End, after the last request, in the task that started it."""


@cache
def feature(name: str) -> type[Any]:
    """A feature, or raise MissingError: its folder or a package that it needs is not there."""
    module = f"features.{name}.feature"
    if any(find_spec(needed) is None for needed in KNOWN[name].needs):
        raise MissingError(name)
    try:
        found: type[Feature] = import_module(module).FEATURE
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        raise MissingError(name) from error
    return found


def installed() -> dict[str, type[Feature]]:
    """The features that are there, by name."""
    found = {}
    for name in KNOWN:
        try:
            found[name] = feature(name)
        except MissingError:
            continue
    return found
