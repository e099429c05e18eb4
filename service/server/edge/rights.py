"""What the key of a request may do with an index or a classifier.

Routes below ``/indexes/{name}`` and ``/classifiers/{name}`` have the check as a dependency of their
router, so that a route added there cannot lack it; names in bodies are checked by ``require``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fastapi import Request

from service.errors import ForbiddenError
from service.keys.rights import EVERYTHING, Right, Rights
from service.server.edge.keys import RIGHTS

if TYPE_CHECKING:
    from service.server.lifecycle import Service

_READING = frozenset({"GET", "HEAD"})


def may(request: Request, right: Right, name: str) -> bool:
    """Whether the request's key has a right on that name; without keys everybody has all."""
    rights: Rights = request.scope.get(RIGHTS, EVERYTHING)
    return rights.may(right, name)


def require(request: Request, right: Right, name: str) -> None:
    """Raise ForbiddenError where the request's key has not that right on that name.

    It is raised whether the name exists or not.
    """
    if not may(request, right, name):
        service: Service = request.app.state.service
        service.metrics.keys_refused.labels("forbidden").inc()
        raise ForbiddenError(
            f"this API key has no right of the kind {right} on that name", code="forbidden"
        )


async def of_index(request: Request) -> None:
    """The index in the path may be read, or written to by all methods but GET."""
    _of_path(request, Right.READ_INDEXES, Right.WRITE_INDEXES)


async def of_classifier(request: Request) -> None:
    """The classifier in the path may be used, or changed by all methods but GET."""
    _of_path(request, Right.USE_CLASSIFIERS, Right.TRAIN_CLASSIFIERS)


async def to_use_classifier(request: Request) -> None:
    """The classifier in the path may be used, by whatever method."""
    _of_path(request, Right.USE_CLASSIFIERS, Right.USE_CLASSIFIERS)


def seen(request: Request, names: Iterable[str], *rights: Right) -> list[str]:
    """Those names on which the request's key has one of the rights."""
    return [name for name in names if any(may(request, right, name) for right in rights)]


def _of_path(request: Request, reading: Right, changing: Right) -> None:
    name = request.path_params.get("name")
    if name is not None:
        require(request, reading if request.method in _READING else changing, name)
