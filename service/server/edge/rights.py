"""Who sends a request, and the rights of its key to an index or a classifier.

Routes below ``/indexes/{name}`` and ``/classifiers/{name}`` get the check as a dependency, mostly
of their router (``below_index``); ``require`` and ``readable`` check names in bodies.
tests/service/test_keys.py asks every route of OpenAPI with a key that lacks the right.
"""

import asyncio
import ipaddress
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from fastapi import APIRouter, Depends, Request
from pydantic import SecretStr
from starlette.types import Scope

from service.embedding.batching.clients import Client
from service.errors import (
    ConflictError,
    ForbiddenError,
    OverloadedError,
    ServiceError,
    UnauthorizedError,
)
from service.keys import file
from service.keys.file import EVERYTHING, Right, Rights
from service.keys.ring import Refusal, Verdict
from service.server.bodies.large import BoundedRoute
from service.server.edge import deadline

if TYPE_CHECKING:
    from service.server.lifecycle import Service

# keys in the scope: the name of the request's API key, its rights, and another check of it
KEY = "docsplit.key"
RIGHTS = "docsplit.rights"
CHECK = "docsplit.check"
# an IPv6 subscriber has a network of at least this size, and can use any address in it
_NETWORK_BITS = 64
_READING = frozenset({"GET", "HEAD"})
_ALIAS = "docsplit.alias"


def identify(scope: Scope) -> Client:
    """The client of a request: its API key, else the peer's address.

    Its name contains the key's name, never the key itself.
    """
    if KEY in scope:
        return Client(_of_key(scope[KEY]))
    host = (scope.get("client") or ("",))[0]
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return Client(f"peer {host}")
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is None:
            network = ipaddress.ip_network((int(address), _NETWORK_BITS), strict=False)
            return Client(f"address {network}")
        address = address.ipv4_mapped
    return Client(f"address {address}")


def by_token(plain: Sequence[SecretStr]) -> dict[str, bytes]:
    """Digests of the tokens in the settings, by the names of their clients.

    These names are positions, so a new order of the tokens gives a name to another caller.
    """
    tokens = (token.get_secret_value().encode() for token in plain)
    return {_of_key(str(at)): file.digest(token) for at, token in enumerate(tokens)}


def _of_key(name: str) -> str:
    return f"key {name}"


def refusal(verdict: Verdict) -> ServiceError:
    """The error for a key that is refused."""
    match verdict.refusal:
        case Refusal.REVOKED:
            return ForbiddenError("this API key has been revoked", code="key_revoked")
        case Refusal.EXPIRED:
            return ForbiddenError("this API key has expired", code="key_expired")
        case Refusal.RATE:
            return OverloadedError(
                max(1.0, verdict.wait),
                "this API key exceeds its rate; try again",
                "rate_limit_exceeded",
            )
    return UnauthorizedError(
        "no valid API key: send the header Authorization: Bearer KEY",
        code="invalid_api_key",
        headers={"www-authenticate": "Bearer"},
    )


async def next_request(scope: Scope) -> None:
    """Count another request of the key, for more work of this one, when its rates allow that.

    Raises:
        ForbiddenError, UnauthorizedError: the key was revoked, has expired or was removed.
    """
    while (check := scope.get(CHECK)) is not None:
        verdict: Verdict = check()
        if verdict.refusal is None:
            return
        if verdict.refusal is not Refusal.RATE:
            raise refusal(verdict)
        await asyncio.sleep(verdict.wait)


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


def below_index(path: str = "", may: Callable[..., object] = of_index) -> APIRouter:
    """A router for paths below ``/indexes/{name}``, with the check of the key's right."""
    prefix, needed = f"/indexes/{{name}}{path}", [Depends(may)]
    return APIRouter(route_class=BoundedRoute, prefix=prefix, tags=["index"], dependencies=needed)


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
        from service.index.rows.keyed import resolve

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
