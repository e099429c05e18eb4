"""What the routes accept, beside the OpenAPI document."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.routing import iter_route_contexts

from service.server import interface
from service.server.app import create_app
from service.server.edge.layer import OPEN_PATHS
from service.server.encoders import open_bundles
from service.server.lifecycle import Service
from service.settings import Settings

# the parts of a form: a route checks them itself
FORM = {"file", "files"}


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> FastAPI:
    settings = Settings(index_path=str(tmp_path_factory.mktemp("index")))
    return create_app(Service(settings, open_bundles(settings)))


def test_services_of_a_process_share_the_prepared_routes(app: FastAPI) -> None:
    settings = app.state.service.settings
    other = create_app(Service(settings, open_bundles(settings)))
    first, second = (
        [getattr(route, "dependant", None) for route in iter_route_contexts(made.routes)]
        for made in (app, other)
    )
    assert len(first) > 60
    assert all(one is another for one, another in zip(first, second, strict=True))
    assert interface.document(app) == interface.document(other)


def test_the_names_are_those_of_all_parameters_and_bodies_in_the_document(app: FastAPI) -> None:
    document = app.openapi()
    schemas = document["components"]["schemas"]
    found: set[str] = set()
    seen: set[str] = set()

    def look(part: Any) -> None:
        if isinstance(part, dict):
            found.update(part.get("properties", ()))
            name = str(part.get("$ref", "")).rpartition("/")[2]
            if name and name not in seen:
                seen.add(name)
                look(schemas[name])
            for value in part.values():
                look(value)
        elif isinstance(part, list):
            for value in part:
                look(value)

    for operations in document["paths"].values():
        for operation in operations.values():
            look(operation.get("requestBody", {}))
            found |= {parameter["name"] for parameter in operation.get("parameters", ())}
    assert interface.field_names(app.routes) == found - FORM
    # answers have further names, so the routes' own answers are not among them
    everything = {name for schema in schemas.values() for name in schema.get("properties", ())}
    assert everything - found


def test_the_methods_of_a_path_are_those_of_all_its_routes(app: FastAPI) -> None:
    paths = app.openapi()["paths"]
    own = interface.methods(app.routes, "/indexes/name/documents/get")
    assert own == ["DELETE", "GET", "PATCH", "POST"]
    for path, operations in paths.items():
        filled = path.replace("{", "").replace("}", "")
        assert {method.upper() for method in operations} <= {*interface.methods(app.routes, filled)}
    assert interface.methods(app.routes, "/openapi.json") == []
    assert interface.methods(app.routes, "/unknown") == []


def test_the_document_says_which_routes_need_a_key(app: FastAPI) -> None:
    document = interface.document(app)
    assert document["components"]["securitySchemes"]["key"]["scheme"] == "bearer"
    for path, operations in document["paths"].items():
        for operation in operations.values():
            asked = operation.get("security", [])
            # the second one is for services without keys
            assert asked == ([] if path in OPEN_PATHS else [{"key": []}, {}]), path


def test_a_thread_makes_the_document_once(app: FastAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[threading.Thread] = []
    content: dict[str, Any] = {"paths": {"/é": {}}}

    def openapi() -> dict[str, Any]:
        made.append(threading.current_thread())
        return content

    async def two() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://docsplit") as client:
            return await asyncio.gather(*(client.get("/openapi.json") for _ in range(2)))

    monkeypatch.setattr(app, "openapi", openapi)
    for answer in asyncio.run(two()):
        assert answer.headers["content-type"] == "application/json"
        assert answer.json() == content
    assert len(made) == 1
    assert made[0] is not threading.main_thread()
