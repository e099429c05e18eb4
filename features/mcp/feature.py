"""Registers the Model Context Protocol; without the setting ``mcp`` it imports nothing of it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.types import ASGIApp, Receive, Scope, Send

from service.errors import NotFoundError
from service.features import Feature

if TYPE_CHECKING:
    from service.server.lifecycle import Service


class Mcp(Feature):
    """Answers agents at /mcp."""

    name = "mcp"

    def __init__(self, service: Service) -> None:
        super().__init__(service)
        self._running = AsyncExitStack()
        self._endpoint = None
        if service.settings.mcp:
            from features.mcp.endpoint import Endpoint

            self._endpoint = Endpoint()

    @staticmethod
    def routers() -> Sequence[APIRouter]:
        """A route that says that the setting is off: with it, no request comes so far."""
        router = APIRouter()
        router.add_route("/mcp", _Off(), include_in_schema=False)  # type: ignore[arg-type]
        return (router,)

    def inner(self, app: ASGIApp) -> ASGIApp:
        """Answer requests to /mcp."""
        if self._endpoint is None:
            return app
        from features.mcp import endpoint

        return endpoint.Mcp(app, self._endpoint, self.service.settings.cors_origins)

    async def start(self) -> None:
        """Accept requests."""
        if self._endpoint is not None:
            await self._running.enter_async_context(self._endpoint.running())

    async def stop(self) -> None:
        """End the requests."""
        await self._running.aclose()


class _Off:
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raise NotFoundError("/mcp is off: start the service with --mcp (DOCSPLIT_MCP=true)")


FEATURE = Mcp
