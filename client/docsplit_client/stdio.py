"""``docsplit-mcp``: the service's /mcp for agents that start a program and use its pipes.

It passes requests on, so tools, resources and rights are those of the service.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import httpx2
from mcp import types
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

from docsplit_client.call import authorization

KEY = "DOCSPLIT_KEY"
TIMEOUT = httpx2.Timeout(610.0, connect=10.0)
LOST = (
    "no answer came from the service: it is away, or the connection broke; a write may have taken "
    "effect; try again"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve standard input and output until it ends.

    Returns:
        Exit status: 0, 1 if the service cannot be reached, or 2 if the key cannot be one.
    """
    parser = argparse.ArgumentParser(
        "docsplit-mcp",
        description="Connect an agent to a docsplit service that runs with --mcp. The "
        f"environment variable {KEY} holds the API key, if the service needs one.",
        allow_abbrev=False,
    )
    parser.add_argument("url", nargs="?", default="http://localhost:8080", help="of the service")
    url: str = parser.parse_args(arguments).url
    try:
        access = authorization(os.environ.get(KEY))
    except ValueError as error:
        parser.error(f"{KEY}: {error}")
    status = 0
    try:
        asyncio.run(serve(url, access))
    except* (httpx2.HTTPError, MCPError):
        print(  # noqa: T201
            f"docsplit-mcp: no connection to {url}/mcp: check the address, the key in {KEY}, and "
            "whether the service runs with --mcp",
            file=sys.stderr,
        )
        status = 1
    return status


class Lasting(httpx2.AsyncClient):
    """A client that answers for a service that does not, so that a lost request ends no program."""

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send a request; without an answer, an error of JSON-RPC is the answer."""
        try:
            answer = await super().send(request, **options)
            await answer.aread()
        except httpx2.RequestError:
            error = {"code": types.INTERNAL_ERROR, "message": LOST}
            body = {"jsonrpc": "2.0", "id": None, "error": error}
            return httpx2.Response(503, json=body, request=request)
        return answer


async def serve(url: str, headers: Mapping[str, str]) -> None:
    """Pass requests from standard input to the service, and its answers to standard output."""
    async with (
        Lasting(headers={**headers}, timeout=TIMEOUT) as http,
        Client(streamable_http_client(f"{url.rstrip('/')}/mcp", http_client=http)) as service,
        stdio_server() as (incoming, outgoing),
    ):
        server = _bridge(service)
        await server.run(incoming, outgoing, server.create_initialization_options())


def _bridge(service: Client) -> Server[Any]:
    return Server(
        "docsplit",
        instructions=service.instructions,
        on_list_tools=lambda _, page: service.list_tools(cursor=page and page.cursor),
        on_call_tool=lambda _, asked: service.call_tool(asked.name, asked.arguments),
        on_list_resources=lambda _, page: service.list_resources(cursor=page and page.cursor),
        on_list_resource_templates=lambda _, page: service.list_resource_templates(
            cursor=page and page.cursor
        ),
        on_read_resource=lambda _, asked: service.read_resource(asked.uri),
    )


if __name__ == "__main__":
    sys.exit(main())
