"""What the routes accept, from the routes themselves: the OpenAPI document takes half a second."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any, get_args

import orjson
from fastapi import FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.routing import iter_route_contexts
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, compile_path

from service import executors, unknown
from service.errors import InvalidError


def describe(app: FastAPI) -> None:
    """Serve the OpenAPI document. The first request for it makes it, in a thread."""
    made: asyncio.Task[bytes] | None = None

    async def answer(_: Request) -> Response:
        nonlocal made
        if made is None:
            made = asyncio.create_task(executors.BODIES.run(lambda: orjson.dumps(document(app))))
        # a client that goes away does not end it for the others
        return Response(await asyncio.shield(made), media_type="application/json")

    app.add_route("/openapi.json", answer, include_in_schema=False)


def document(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document. It says which routes need an API key, if the service has keys."""
    made = app.openapi()
    made.setdefault("components", {})["securitySchemes"] = {
        "key": {
            "type": "http",
            "scheme": "bearer",
            "description": "an API key; a service without keys needs none",
        }
    }
    for operations in made["paths"].values():
        for operation in operations.values():
            if "401" in operation["responses"]:
                operation["security"] = [{"key": []}, {}]
    return made


def field_names(routes: Sequence[BaseRoute]) -> frozenset[str]:
    """Names of all parameters of the routes and of all fields of their bodies, in JSON."""
    found: set[str] = set()
    models: set[type[BaseModel]] = set()
    for route in iter_route_contexts(routes):
        if (dependant := getattr(route, "dependant", None)) is None:
            continue
        for needed in _every(dependant):
            found |= {parameter.alias for parameter in _parameters(needed)}
            for field in (*_parameters(needed), *needed.body_params):
                _add_models(field.field_info.annotation, models)
        extra = route.openapi_extra or {}
        found |= {parameter["name"] for parameter in extra.get("parameters", ())}
    return frozenset(found.union(*map(unknown.field_names, models)))


def methods(routes: Sequence[BaseRoute], path: str) -> list[str]:
    """Methods of all documented routes on a path; Starlette names only those of the first."""
    found: set[str] = set()
    for route in iter_route_contexts(routes):
        pattern = route.path_format if getattr(route, "include_in_schema", False) else None
        if pattern is not None and compile_path(pattern)[0].fullmatch(path):
            found |= route.methods or set()
    return sorted(found)


async def known_parameters(request: Request) -> None:
    """Refuse the first query parameter that the request's route does not have: a misspelt one
    would have no effect."""
    if not request.scope["query_string"]:
        return
    needed = _every(request.scope["route"].dependant)
    known = tuple(parameter.alias for one in needed for parameter in one.query_params)
    if request.query_params and not known:
        raise InvalidError("this route has no query parameters: leave them out")
    if message := unknown.unknown_name(request.query_params, known):
        raise InvalidError(f"the query parameter {message}")


def _every(dependant: Dependant) -> Iterator[Dependant]:
    yield dependant
    for needed in dependant.dependencies:
        yield from _every(needed)


def _parameters(dependant: Dependant) -> list[Any]:
    paths, queries = dependant.path_params, dependant.query_params
    return [*paths, *queries, *dependant.header_params, *dependant.cookie_params]


def _add_models(annotation: Any, found: set[type[BaseModel]]) -> None:
    if not isinstance(annotation, type) or not issubclass(annotation, BaseModel):
        for part in get_args(annotation):
            _add_models(part, found)
    elif annotation not in found:
        found.add(annotation)
        for field in annotation.model_fields.values():
            _add_models(field.annotation, found)
