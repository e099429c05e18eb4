"""The rights of a request's key to an index or a classifier.

Routes below ``/indexes/{name}`` and ``/classifiers/{name}`` get the check from their router, so a
new route cannot lack it. ``require`` checks names in bodies.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fastapi import Request

from service.errors import ConflictError, ForbiddenError
from service.keys.file import EVERYTHING, Right, Rights
from service.server.edge import deadline
from service.server.edge.keys import RIGHTS

if TYPE_CHECKING:
    from service.server.lifecycle import Service

_READING = frozenset({"GET", "HEAD"})
_ALIAS = "docsplit.alias"


def may(request: Request, right: Right, name: str) -> bool:
    """Whether the request's key has a right to that name; without keys everybody has all rights."""
    rights: Rights = request.scope.get(RIGHTS, EVERYTHING)
    return rights.may(right, name)


def require(request: Request, right: Right, name: str) -> None:
    """Raise ForbiddenError if the request's key does not have that right to that name.

    It does so even if the name does not exist.
    """
    if not may(request, right, name):
        service: Service = request.app.state.service
        service.metrics.keys_refused.labels("forbidden").inc()
        raise ForbiddenError(
            f"this API key has no right of the kind {right} to that name", code="forbidden"
        )


async def of_index(request: Request) -> None:
    """Require the right to read the index in the path, or to write for methods except GET.

    The routes get the name of the index in place of an alias.
    """
    await _resolve(request)
    _of_path(request, Right.READ_INDEXES, Right.WRITE_INDEXES)


async def to_read_index(request: Request) -> None:
    """Require the right to read the index in the path, for every method; see ``of_index``."""
    await _resolve(request)
    _of_path(request, Right.READ_INDEXES, Right.READ_INDEXES)


async def readable(request: Request, name: str) -> str:
    """The index of a name in a body, which may be an alias; requires the right to read it."""
    real = await _index(request, name)
    require(request, Right.READ_INDEXES, real)
    return real


def refuse_alias(request: Request) -> None:
    """Raise ConflictError if the name in the path is an alias."""
    if _ALIAS in request.scope:
        raise ConflictError(
            "that name is an alias: use the name of its index, or DELETE /aliases/{alias}"
        )


async def of_classifier(request: Request) -> None:
    """Require the right to use the classifier in the path, or to change it except for GET."""
    _of_path(request, Right.USE_CLASSIFIERS, Right.TRAIN_CLASSIFIERS)


async def to_use_classifier(request: Request) -> None:
    """Require the right to use the classifier in the path, for every method."""
    _of_path(request, Right.USE_CLASSIFIERS, Right.USE_CLASSIFIERS)


def seen(request: Request, names: Iterable[str], *rights: Right) -> list[str]:
    """Those of the names to which the request's key has one of the rights."""
    return [name for name in names if any(may(request, right, name) for right in rights)]


async def _index(request: Request, name: str) -> str:
    service: Service = request.app.state.service
    async with deadline.within(request):
        indexes = await service.store.indexes()
        from service.index.rows.aliases import resolve

        return await resolve(indexes, name)


async def _resolve(request: Request) -> None:
    given = request.path_params.get("name")
    if given is None:
        return
    real = await _index(request, given)
    if real != given:
        request.scope[_ALIAS] = given
        # one switch of an alias must not come between the check of the rights and the route
        request.path_params["name"] = real


def _of_path(request: Request, reading: Right, changing: Right) -> None:
    name = request.path_params.get("name")
    if name is not None:
        require(request, reading if request.method in _READING else changing, name)
