"""Errors in four dialects: native (text-embeddings-inference's), OpenAI's, Cohere's, MCP's."""

from collections.abc import Container, Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from service.errors import (
    DeadlineError,
    EngineFailedError,
    InvalidError,
    MalformedError,
    MethodError,
    NotFoundError,
    ServiceError,
    StoreError,
)
from service.logs import outline
from service.server import interface
from service.server.bodies.fields import FORMS
from service.unknown import misspelt, remedy

log = structlog.get_logger("docsplit")

COHERE_ROUTES = {"/v1/rerank", "/v2/rerank", "/v2/embed"}
MCP_ROUTE = "/mcp"
# of JSON-RPC: an invalid request, and an internal error
_INVALID, _INTERNAL = -32600, -32603


class NativeError(BaseModel):
    """Body of an error on the native routes."""

    error: str
    error_type: str


class OpenAIErrorDetail(BaseModel):
    """The error in OpenAI's terms."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class OpenAIError(BaseModel):
    """Body of an error below /v1."""

    error: OpenAIErrorDetail


class CohereError(BaseModel):
    """Body of an error on Cohere's routes."""

    message: str


class McpErrorDetail(BaseModel):
    """The error in JSON-RPC's terms."""

    code: int
    message: str


class McpError(BaseModel):
    """Body of an error at /mcp; agents' programs pass on only such messages."""

    jsonrpc: str = "2.0"
    id: None = None
    error: McpErrorDetail


def response(path: str, error: ServiceError) -> Response:
    """The error in the dialect of ``path``."""
    body: BaseModel = NativeError(error=error.message, error_type=error.kind)
    if path in COHERE_ROUTES:
        body = CohereError(message=error.message)
    elif path == MCP_ROUTE:
        code = _INVALID if error.status < ServiceError.status else _INTERNAL
        body = McpError(error=McpErrorDetail(code=code, message=error.message))
    elif path.startswith("/v1/"):
        detail = OpenAIErrorDetail(
            message=error.message, type=error.openai, param=error.param, code=error.code
        )
        body = OpenAIError(error=detail)
    return Response(
        body.model_dump_json(), error.status, error.headers, media_type="application/json"
    )


def documented(*statuses: int, dialect: type[BaseModel] = NativeError) -> dict[int | str, Any]:
    """OpenAPI ``responses`` of a route."""
    said = {
        400: "An input is empty, or the body is not JSON.",
        401: "No valid API key.",
        403: "The API key is revoked or expired, or has no right to that name.",
        404: "Unknown model, index, document or classifier.",
        408: "The body did not arrive in time.",
        409: "It belongs to another model, or differs from the stored object.",
        413: "A document, a batch or the body exceeds its limit.",
        415: "The body is of another type than this route takes.",
        422: "A field has a wrong type or value.",
        429: "Too much work is waiting or in progress, or the API key exceeds its rate; "
        "Retry-After says when to try again.",
        431: "The request line and the headers exceed their limit.",
        500: "The engine failed on this request.",
        503: "Not ready, the index is being re-embedded, or the store is unusable.",
        504: "The deadline passed.",
    }
    # every route that checks a key may refuse it or its rate; every route that works has a deadline
    implied = {401: {403, 429}, 503: {504}}
    named = {431}.union(statuses, *(implied.get(status, ()) for status in statuses))
    # the connection refuses a head before the dialect of its path is known
    models = dict.fromkeys(named, dialect) | {431: NativeError}
    # FastAPI makes a validator for each model that it is given: 600 for all routes, at every start.
    # The last status with a model puts it into the document's components; the others refer to it.
    given = {model: status for status, model in sorted(models.items())}
    return {
        one: {"description": said[one]}
        | ({"model": model} if given[model] == one else {"content": _reference(model)})
        for one, model in sorted(models.items())
    }


def written(
    model: Any,
    *statuses: int,
    said: str | None = None,
    dialect: type[BaseModel] = NativeError,
    more: Mapping[int | str, Any] = MappingProxyType({}),
) -> dict[str, Any]:
    """Arguments of a route that writes the JSON of its answer itself, faster than FastAPI does.

    Args:
        statuses: of errors, see ``documented``.
    """
    answer = {"model": model} | ({} if said is None else {"description": said})
    responses = {200: answer, **more, **documented(*statuses, dialect=dialect)}
    return {"responses": responses, "response_model": None, "response_class": Response}


def _reference(model: type[BaseModel]) -> dict[str, Any]:
    schema = {"$ref": f"#/components/schemas/{model.__name__}"}
    return {"application/json": {"schema": schema}}


def translate(error: Exception, fields: Container[str] = frozenset()) -> ServiceError:
    """Turn any exception into an answer; log an unexpected one, which becomes 500.

    Args:
        fields: names of the interface, the only names that the answer may contain.
    """
    match error:
        case EngineFailedError():
            log.error("engine_failed", exc_info=error)
            return ServiceError("the engine failed on this request", code="engine_failed")
        case ServiceError() if error.status != ServiceError.status:
            return error
        case TimeoutError():
            return DeadlineError()
        case RequestValidationError():
            return _validation(error, fields)
        case HTTPException():
            return _http(error)
    log.error("unexpected", outline=outline(error))
    return ServiceError("internal error", code="internal_error")


def install(app: FastAPI) -> None:
    """Answer the exceptions that routes raise. ``Edge`` answers unexpected ones."""

    async def handle(request: Request, error: Exception) -> Response:
        answer = translate(error, _fields(request.app))
        path = request.url.path
        if answer.status == 405 and (allowed := interface.methods(request.app.routes, path)):
            answer.headers["allow"] = ", ".join(allowed)
        return response(path, answer)

    async def handle_store(request: Request, error: Exception) -> Response:
        fault = await request.app.state.service.store.fault(error)
        if fault is None:
            # not a fault of the store: ``Edge`` answers it
            raise error
        return await handle(request, fault)

    # LanceDB raises plain exceptions for errors of the operating system
    for plain in (StoreError, RuntimeError, OSError, ValueError):
        app.add_exception_handler(plain, handle_store)
    for kind in (ServiceError, RequestValidationError, HTTPException, TimeoutError):
        app.add_exception_handler(kind, handle)


def _http(error: HTTPException) -> ServiceError:
    kinds: dict[int, tuple[type[ServiceError], str]] = {
        400: (MalformedError, "the body could not be read: send UTF-8 JSON"),
        404: (NotFoundError, "no such route; GET /docs lists them"),
        405: (MethodError, "this route does not accept that method; GET /docs lists them"),
    }
    kind, message = kinds.get(error.status_code, (InvalidError, str(error.detail)))
    headers = {name.lower(): value for name, value in (error.headers or {}).items()}
    answer = kind(message, headers=headers)
    answer.status = error.status_code
    return answer


def _fields(app: FastAPI) -> frozenset[str]:
    found: frozenset[str] | None = getattr(app.state, "fields", None)
    if found is None:
        app.state.fields = found = interface.field_names(app.routes)
    return found


def _validation(error: RequestValidationError, fields: Container[str]) -> ServiceError:
    first = error.errors()[0]
    # pydantic also names the keys of the caller's objects and the members of unions
    place = [str(part) for part in first["loc"] if isinstance(part, int) or part in fields]
    if first["type"] == "json_invalid":
        return MalformedError(f"the body is not valid JSON (at character {place[0]})")
    if not place and first["type"] == "value_error":
        return InvalidError(remedy(first, FORMS))
    if not place:
        return InvalidError("the body: send a JSON object with the fields that GET /docs shows")
    # pydantic names an alias and its field one after the other
    field = ".".join(place[:1] + [part for last, part in pairwise(place) if part != last])
    message = remedy(first, FORMS)
    if first["type"] == "missing" and (name := misspelt(place[-1], first.get("input"))):
        message += f', and "{name}" is not known'
    return InvalidError(f"{field}: {message}", field)
