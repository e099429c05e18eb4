"""Refuses query parameters that a route does not have: a misspelt one would have no effect."""

from __future__ import annotations

from collections.abc import Iterator

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from service.errors import InvalidError
from service.unknown import unknown_name


async def known_parameters(request: Request) -> None:
    """Refuse the first query parameter that the request's route does not have."""
    if not request.scope["query_string"]:
        return
    route: APIRoute = request.scope["route"]
    known = tuple(_names(route.dependant))
    if request.query_params and not known:
        raise InvalidError("this route has no query parameters: leave them out")
    if message := unknown_name(request.query_params, known):
        raise InvalidError(f"the query parameter {message}")


def _names(dependant: Dependant) -> Iterator[str]:
    yield from (parameter.alias for parameter in dependant.query_params)
    for part in dependant.dependencies:
        yield from _names(part)
