"""ASGI middleware that answers POST /mcp with the Python SDK of the protocol.

The SDK runs without sessions: each request has its own key, rights and deadline, and any replica
can answer it. It runs inside the middleware for keys, clients and bodies.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from functools import cache
from importlib.metadata import version
from typing import Any
from urllib.parse import unquote, urlsplit

from fastapi.exceptions import RequestValidationError
from mcp import types
from mcp.server.lowlevel.server import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from pydantic import TypeAdapter, ValidationError
from starlette.types import ASGIApp, Receive, Scope, Send

from features.mcp.tools import Caller, IndexName, RefusedError, Tool, offered
from service import precedence
from service.errors import ForbiddenError, MethodError, ServiceError, TooLargeError
from service.server.bodies.fields import Identifier
from service.server.edge.errors import MCP_ROUTE as PATH
from service.server.edge.errors import response, translate

# the SDK parses a body on the event loop, which a larger one would block
MOST_BYTES = precedence.LARGE
# for the answer that says that the deadline has passed
_GRACE = 5.0
SCHEME = "docsplit"
TEMPLATE = f"{SCHEME}://{{index}}/{{id}}"

_INDEX: TypeAdapter[str] = TypeAdapter(IndexName)
_ID: TypeAdapter[str] = TypeAdapter(Identifier)
_INSTRUCTIONS = (
    "Search a collection of long documents. Call list_indexes, then find_documents or "
    "find_passages. Places (start, end) count Unicode code points of a document's text; "
    "get_document reads the text at a place."
)
_caller: ContextVar[Caller] = ContextVar("caller")


class Endpoint:
    """The protocol's server of one process."""

    def __init__(self) -> None:
        server: Server[Any] = Server(
            "docsplit",
            version=version("docsplit"),
            instructions=_INSTRUCTIONS,
            # no argument comes in a header
            get_tool_input_schema=lambda _: None,
            on_list_tools=_list_tools,
            on_call_tool=_call_tool,
            on_list_resources=_list_resources,
            on_list_resource_templates=_list_templates,
            on_read_resource=_read_resource,
        )
        # its spans would contain names that callers send
        server.middleware.clear()
        self._manager = StreamableHTTPSessionManager(
            server, json_response=True, stateless=True, max_request_body_size=MOST_BYTES
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Accept requests; it can run once."""
        async with self._manager.run():
            yield

    async def answer(self, caller: Caller, receive: Receive, send: Send) -> None:
        """Answer one request in the name of the caller."""
        token = _caller.set(caller)
        try:
            await self._manager.handle_request(caller.scope, receive, send)
        finally:
            _caller.reset(token)


class Mcp:
    """Passes requests to /mcp to the protocol's server, and all others on.

    Args:
        endpoint: the protocol's server.
        origins: web origins whose scripts may send requests, or ``*``. A browser names the origin
            of a script with every POST, so a page of another origin has no access even if its
            host name resolves to this service (DNS rebinding).
    """

    def __init__(self, app: ASGIApp, endpoint: Endpoint, origins: Sequence[str]) -> None:
        self._app = app
        self._endpoint = endpoint
        self._origins = frozenset(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != PATH:
            await self._app(scope, receive, send)
            return
        if (refusal := self._refusal(scope)) is not None:
            await response(PATH, refusal)(scope, receive, send)
            return
        caller = Caller(self._app, scope)
        left = scope["docsplit.deadline"] - time.monotonic()
        async with asyncio.timeout(left + _GRACE):
            await self._endpoint.answer(caller, receive, send)

    def _refusal(self, scope: Scope) -> ServiceError | None:
        if scope["method"] != "POST":
            return MethodError("/mcp accepts only POST", headers={"allow": "POST"})
        headers = dict(scope["headers"])
        origin = headers.get(b"origin")
        named = None if origin is None else origin.decode("latin-1")
        if named is not None and not self._origins & {named, "*"}:
            return ForbiddenError(
                "scripts of this web origin may not use /mcp: name it in cors_origins"
            )
        length = headers.get(b"content-length", b"")
        if length.isdigit() and int(length) > MOST_BYTES:
            return TooLargeError(f"the limit of a body to /mcp is {MOST_BYTES} bytes: send less")
        return None


async def _list_tools(_: Any, __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
    return types.ListToolsResult(tools=[_shown(tool) for tool in offered(_caller.get()).values()])


async def _call_tool(_: Any, asked: types.CallToolRequestParams) -> types.CallToolResult:
    caller = _caller.get()
    tool = offered(caller).get(asked.name)
    if tool is None:
        raise MCPError(types.INVALID_PARAMS, "there is no such tool; tools/list names all")
    result: dict[str, Any] | None = None
    try:
        result = await tool.run(caller, tool.arguments.model_validate(asked.arguments or {}))
        text = json.dumps(result, ensure_ascii=False)
    except ValidationError as error:
        found = RequestValidationError(error.errors(include_input=False, include_url=False))
        text = translate(found, tool.arguments.model_fields.keys()).message
    except RefusedError as error:
        text = str(error)
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)],
        structured_content=result,
        is_error=result is None,
    )


async def _list_resources(
    _: Any, asked: types.PaginatedRequestParams | None
) -> types.ListResourcesResult:
    try:
        names, following = await _caller.get().indexes(asked.cursor if asked else None)
    except RefusedError as error:
        raise MCPError(types.INTERNAL_ERROR, str(error)) from None
    kind = "application/json"
    listed = [types.Resource(uri=f"{SCHEME}://{n}", name=n, mime_type=kind) for n in names]
    return types.ListResourcesResult(resources=listed, next_cursor=following)


async def _list_templates(
    _: Any, __: types.PaginatedRequestParams | None
) -> types.ListResourceTemplatesResult:
    template = types.ResourceTemplate(
        uri_template=TEMPLATE,
        name="document",
        description="the whole text of a document, by the name of its index and its id",
        mime_type="text/plain",
    )
    return types.ListResourceTemplatesResult(resource_templates=[template])


async def _read_resource(
    _: Any, asked: types.ReadResourceRequestParams
) -> types.ReadResourceResult:
    address = str(asked.uri)
    try:
        index, name = _place(address)
        if name is None:
            kind, text = "application/json", json.dumps(await _caller.get().get("indexes", index))
        else:
            kind, text = "text/plain", (await _caller.get().document(index, name))["text"]
    except ValueError:
        message = f"give an address of the form {TEMPLATE}, percent-encoded"
        raise MCPError(types.INVALID_PARAMS, message) from None
    except RefusedError as error:
        raise MCPError(types.INVALID_PARAMS, str(error)) from None
    part = types.TextResourceContents(uri=address, mime_type=kind, text=text)
    return types.ReadResourceResult(contents=[part])


def _place(address: str) -> tuple[str, str | None]:
    """The index and the document that an address names; None for an index.

    Raises:
        ValueError: the address has another form.
    """
    parts = urlsplit(address)
    if parts.scheme != SCHEME or parts.query or parts.fragment:
        raise ValueError(address)
    name = unquote(parts.path[1:], errors="strict")
    return _INDEX.validate_python(parts.netloc), _ID.validate_python(name) if name else None


@cache
def _shown(tool: Tool) -> types.Tool:
    return types.Tool(
        name=tool.name,
        description=tool.description,
        input_schema=tool.arguments.model_json_schema(),
        output_schema=tool.result.model_json_schema(mode="serialization"),
        annotations=types.ToolAnnotations(
            read_only_hint=not tool.writes, destructive_hint=tool.writes, open_world_hint=False
        ),
    )
