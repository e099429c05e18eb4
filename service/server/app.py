"""The FastAPI application."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from importlib.metadata import version

import structlog
from fastapi import APIRouter, Depends, FastAPI
from fastapi.routing import iter_route_contexts
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from service import executors, features
from service.server import interface
from service.server.edge import errors
from service.server.edge.layer import Edge
from service.server.lifecycle import Service

# modules in service/server/routes; other servers have routes of these names too, and clients that
# send them more
_AS_OTHER_SERVERS = ("embed", "rerank", "classify", "dialects", "status")
_OWN = (
    *("classifiers", "labelling", "similar", "stored.passages"),
    *("stored.indexes", "citation", "stored.links", "stored.missing", "stored.jobs"),
    *("stored.documents", "stored.duplicates"),
)


class _Missing:
    """Answers all requests to a route of a feature that is not installed."""

    def __init__(self, name: str) -> None:
        self._name = name

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raise features.MissingError(self._name)


def _prepare() -> list[BaseRoute]:
    """The routes of every service. FastAPI computes their parts once, on the first look at them."""
    router = APIRouter()
    for name in _AS_OTHER_SERVERS:
        router.include_router(import_module(f"service.server.routes.{name}").router)
    own = [import_module(f"service.server.routes.{name}").router for name in _OWN]
    installed = features.installed()
    for feature in installed.values():
        own += feature.routers()
    for each in own:
        router.include_router(each, dependencies=[Depends(interface.known_parameters)])
    for name, known in features.KNOWN.items():
        if name not in installed:
            router.routes += [Route(path, _Missing(name)) for path in known.paths]
    list(iter_route_contexts(router.routes))
    return router.routes


# half a second of a core, which processes that are forked after the import share
_ROUTES = _prepare()
# request and answer headers for scripts of other origins, besides those that are always allowed
_SENT_HEADERS = [
    "authorization",
    "content-type",
    "if-match",
    "if-none-match",
    "mcp-method",
    "mcp-name",
    "mcp-protocol-version",
    "traceparent",
    "tracestate",
    "x-document-hash",
    "x-request-id",
    "x-request-timeout",
]
_TOLD_HEADERS = [
    "content-disposition",
    "etag",
    "location",
    "retry-after",
    "traceparent",
    "x-cache",
    "x-compute-characters",
    "x-compute-tokens",
    "x-did-you-mean",
    "x-index-revision",
    "x-inference-time",
    "x-queue-time",
    "x-request-id",
    "x-tokenization-time",
    "x-total-time",
    "x-truncated",
    "x-unknown-tokens",
]
# for commits and batches that still run when the socket is closed and all requests have ended
STOP_SECONDS = 20.0
log = structlog.get_logger("docsplit")


def create_app(service: Service) -> FastAPI:
    """Make the application around a service; the engine starts with its lifespan.

    It listens while the engine compiles: /livez answers at once, /readyz once the engine is warm.
    """

    async def start() -> None:
        await service.start()
        await service.speed_up()
        service.follow()

    service.features = {name: made(service) for name, made in features.installed().items()}

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        executors.install(asyncio.get_running_loop())
        starting = asyncio.create_task(start())
        beside = [
            asyncio.create_task(service.keys.watch()),
            asyncio.create_task(executors.tend()),
        ]
        if service.workers is not None:
            await service.workers.open()
            # until the engine runs, the other workers take all connections
            await starting
        for feature in service.features.values():
            await feature.start()
        try:
            yield
        finally:
            for task in beside:
                task.cancel()
            await starting
            try:
                async with asyncio.timeout(STOP_SECONDS):
                    for feature in service.features.values():
                        await feature.stop()
                    await service.stop()
            except TimeoutError:
                # the loop cancels what still runs: all requests have ended
                log.error("stopped_before_the_end", seconds=STOP_SECONDS)
                service.cut_off = True

    app = FastAPI(
        routes=[*_ROUTES],
        title="docsplit",
        version=version("docsplit"),
        summary="Vectors of whole documents.",
        lifespan=lifespan,
        # ``interface`` serves the document, ``Pages`` /docs
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        # a redirect would send clients to the host that their Host header names
        redirect_slashes=False,
        # FastAPI's own spans and logs contain query strings and messages; service.tracing's do not
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    app.state.service = service
    interface.describe(app)
    errors.install(app)
    settings = service.settings
    # the middleware that is added last is the outermost
    for feature in service.features.values():
        app.add_middleware(feature.inner)
    outside = [Middleware(feature.outer) for feature in service.features.values()]
    if settings.cors_origins:
        outside.append(
            Middleware(
                CORSMiddleware,
                allow_origins=settings.cors_origins,
                allow_methods=["GET", "POST", "PUT", "PATCH", "DELETE"],
                allow_headers=_SENT_HEADERS,
                expose_headers=_TOLD_HEADERS,
            )
        )
    paths = {route.path_format for route in iter_route_contexts(app.routes) if route.path_format}
    app.add_middleware(Edge, service=service, paths=paths, outside=outside)
    return app
