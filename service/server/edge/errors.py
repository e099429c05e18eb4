"""Errors in both dialects: native (as text-embeddings-inference has them) and OpenAI's."""

from __future__ import annotations

import math
from collections.abc import Container
from itertools import pairwise
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.routing import compile_path

from service.embedding.batching.batcher import DeadlineError, EngineFailedError, OverloadedError
from service.embedding.embedder import EmptyInputError, TooLongError
from service.embedding.prompts import UnknownPromptError
from service.errors import BuildingError, ConflictError, InvalidError, NotFoundError, StoreError
from service.logs import outline
from service.server.edge.inflight import FullError

log = structlog.get_logger("docsplit")

# status → (native error_type, OpenAI type)
_KINDS = {
    400: ("Empty", "invalid_request_error"),
    401: ("Unauthorized", "authentication_error"),
    403: ("Forbidden", "permission_error"),
    404: ("NotFound", "not_found_error"),
    405: ("MethodNotAllowed", "invalid_request_error"),
    408: ("Timeout", "timeout_error"),
    409: ("Conflict", "invalid_request_error"),
    412: ("VersionMismatch", "invalid_request_error"),
    413: ("TooLarge", "invalid_request_error"),
    415: ("UnsupportedMediaType", "invalid_request_error"),
    422: ("Validation", "invalid_request_error"),
    429: ("Overloaded", "rate_limit_error"),
    500: ("Backend", "server_error"),
    503: ("Unhealthy", "server_error"),
}

BUILDING_RETRY_SECONDS = 5


class ApiError(Exception):
    """An answer other than 2xx.

    Args:
        status: HTTP status.
        message: what was wrong and how to mend it; never the caller's text.
        param: field at fault (OpenAI dialect).
        code: machine-readable reason (OpenAI dialect).
        kind: overrides the native ``error_type`` of the status.
        headers: sent along.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        kind: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.kind = kind
        self.headers = headers or {}


class NativeError(BaseModel):
    """Body of an error on the native routes."""

    error: str
    error_type: str


class OpenAIErrorDetail(BaseModel):
    """What went wrong, in OpenAI's terms."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class OpenAIError(BaseModel):
    """Body of an error below /v1."""

    error: OpenAIErrorDetail


def response(path: str, error: ApiError) -> Response:
    """The error as the dialect of ``path`` has it."""
    native, openai = _KINDS.get(error.status, ("Validation", "invalid_request_error"))
    body: BaseModel
    if path.startswith("/v1/"):
        body = OpenAIError(
            error=OpenAIErrorDetail(
                message=error.message, type=openai, param=error.param, code=error.code
            )
        )
    else:
        body = NativeError(error=error.message, error_type=error.kind or native)
    return Response(
        body.model_dump_json(), error.status, error.headers, media_type="application/json"
    )


def documented(*statuses: int, dialect: type[BaseModel] = NativeError) -> dict[int | str, Any]:
    """OpenAPI ``responses`` of a route."""
    said = {
        400: "An input is empty, or the body is no JSON.",
        401: "No valid API key.",
        403: "The API key is revoked, has expired, or has no right on that name.",
        404: "Unknown model, index, document or classifier.",
        408: "The body did not arrive in time.",
        409: "It belongs to another model, or differs from what is there.",
        413: "A document, a batch or the body is over its limit.",
        415: "The body is not JSON.",
        422: "A field has a wrong type or value.",
        429: "Too much waits, or is in flight, already, or the API key is over its rate; "
        "Retry-After says when to come back.",
        500: "The engine failed on this request.",
        503: "Not ready, the index is being re-embedded, the deadline passed, or the store cannot "
        "be used.",
    }
    # whoever asks for a key may refuse it, or its rate
    named = {*statuses, 403, 429} if 401 in statuses else {*statuses}
    return {status: {"model": dialect, "description": said[status]} for status in sorted(named)}


def translate(error: Exception, fields: Container[str] = frozenset()) -> ApiError:
    """Any exception as an answer; what is unexpected is logged and becomes 500.

    Args:
        error: of a route.
        fields: names that the answer may hold: those of the interface.
    """
    match error:
        case ApiError():
            return error
        case EmptyInputError():
            return ApiError(400, str(error), param="input", code="empty_input")
        case TooLongError():
            return ApiError(413, str(error), param="input", code="document_too_long")
        case UnknownPromptError():
            return ApiError(422, str(error), param="prompt_name")
        case NotFoundError():
            return ApiError(404, str(error))
        case ConflictError():
            return ApiError(409, str(error))
        case BuildingError():
            return ApiError(
                503,
                str(error),
                kind="Building",
                code="index_building",
                headers={"retry-after": str(BUILDING_RETRY_SECONDS)},
            )
        case StoreError():
            return ApiError(503, str(error), kind="Store", code="store_unusable")
        case InvalidError():
            return ApiError(422, str(error), param=error.param)
        case OverloadedError():
            wait = math.ceil(error.retry_after)
            return ApiError(
                429,
                "overloaded: too many tokens wait already, of this client or of all, to take this "
                f"or to do it before its deadline; try again in {wait} s",
                code="overloaded",
                headers={"retry-after": str(wait)},
            )
        case FullError():
            wait = math.ceil(error.retry_after)
            return ApiError(
                429,
                "overloaded: the requests at work, of this client or of all, take the memory that "
                f"this one needs; send less at a time, or try again in {wait} s",
                code="overloaded",
                headers={"retry-after": str(wait)},
            )
        case DeadlineError() | TimeoutError():
            return ApiError(
                503,
                "the work cannot be done before the deadline: send less, or ask for more time "
                "in the header x-request-timeout",
                kind="Timeout",
                code="deadline_exceeded",
            )
        case EngineFailedError():
            log.error("engine_failed", exc_info=error)
            return ApiError(500, "the engine failed on this request", code="engine_failed")
        case RequestValidationError():
            return _validation(error, fields)
        case HTTPException():
            return _http(error)
    log.error("unexpected", outline=outline(error))
    return ApiError(500, "internal error", code="internal_error")


def install(app: FastAPI) -> None:
    """Answer the exceptions that a route may raise; ``Guard`` answers the unexpected ones."""

    async def handle(request: Request, error: Exception) -> Response:
        answer = translate(error, _fields(request.app))
        if answer.status == 405 and (allowed := methods(request)):
            answer.headers["allow"] = ", ".join(allowed)
        return response(request.url.path, answer)

    async def handle_store(request: Request, error: Exception) -> Response:
        fault = await request.app.state.service.store.fault(error)
        if fault is None:
            # whoever stands outside knows what to do with it
            raise error
        return await handle(request, fault)

    # LanceDB raises plain ones for whatever the system refuses
    for plain in (StoreError, RuntimeError, OSError, ValueError):
        app.add_exception_handler(plain, handle_store)
    for kind in (
        ApiError,
        RequestValidationError,
        HTTPException,
        EmptyInputError,
        TooLongError,
        UnknownPromptError,
        NotFoundError,
        ConflictError,
        BuildingError,
        InvalidError,
        OverloadedError,
        DeadlineError,
        TimeoutError,
        EngineFailedError,
    ):
        app.add_exception_handler(kind, handle)


def methods(request: Request) -> list[str]:
    """Methods of all routes on the request's path; Starlette names those of the first alone."""
    paths: dict[str, dict[str, Any]] = request.app.openapi()["paths"]
    found = (
        method.upper()
        for path, operations in paths.items()
        if compile_path(path)[0].fullmatch(request.url.path)
        for method in operations
    )
    return sorted(set(found))


def _http(error: HTTPException) -> ApiError:
    messages = {
        400: "the body could not be read: send UTF-8 JSON",
        404: "no such route; GET /docs lists them",
        405: "this route does not take that method; GET /docs lists them",
    }
    message = messages.get(error.status_code, str(error.detail))
    kind = "Validation" if error.status_code == 400 else None
    return ApiError(error.status_code, message, kind=kind, headers=dict(error.headers or {}))


def _fields(app: FastAPI) -> frozenset[str]:
    """Names of all fields and parameters of the interface."""
    found: frozenset[str] | None = getattr(app.state, "fields", None)
    if found is None:
        document = app.openapi()
        schemas = document["components"]["schemas"].values()
        names = {name for schema in schemas for name in schema.get("properties", ())}
        for operations in document["paths"].values():
            for operation in operations.values():
                names |= {parameter["name"] for parameter in operation.get("parameters", ())}
        app.state.fields = found = frozenset(names)
    return found


def _validation(error: RequestValidationError, fields: Container[str]) -> ApiError:
    first = error.errors()[0]
    # pydantic names the keys of the caller's objects and the arms of unions, too
    place = [str(part) for part in first["loc"] if isinstance(part, int) or part in fields]
    if first["type"] == "json_invalid":
        return ApiError(400, f"the body is no JSON (at character {place[0]})", kind="Validation")
    if not place and first["type"] == "value_error":
        return ApiError(422, first["msg"].removeprefix("Value error, "))
    if not place:
        return ApiError(422, "the body: send a JSON object with the fields that GET /docs shows")
    # an alias and the field of that name stand one after the other
    field = ".".join(place[:1] + [part for last, part in pairwise(place) if part != last])
    message = first["msg"].removeprefix("Value error, ")
    return ApiError(422, f"{field}: {message}", param=field)
