"""Errors of the client. Their messages are the service's own, which say how to fix the request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx2


class DocsplitError(Exception):
    """The base of all errors here."""


class UnreachableError(DocsplitError):
    """No answer of the service came: it is away, the connection broke, or something else answered.

    ``__cause__`` says why.
    """


class ApiError(DocsplitError):
    """The service refused the request.

    Attributes:
        status: of HTTP.
        message: says what was wrong and how to fix it.
        kind: ``error_type`` of the answer, such as ``Validation``; empty if a proxy answered.
        body: the whole answer, e.g. with ``conflicts`` or ``duplicates``.
        retry_after: seconds until the service expects to have room; None if it did not say.
    """

    def __init__(
        self, status: int, message: str, kind: str, body: Any, retry_after: float | None
    ) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status
        self.message = message
        self.kind = kind
        self.body = body
        self.retry_after = retry_after

    def __reduce__(self) -> tuple[Any, ...]:
        """Let an error come back from another process."""
        return type(self), (self.status, self.message, self.kind, self.body, self.retry_after)


class BadRequestError(ApiError):
    """400, 413, 415 or 422: the request is wrong or too large."""


class AccessError(ApiError):
    """401 or 403: the key is missing, unknown, revoked or has no right to that name."""


class NotFoundError(ApiError):
    """404: no such index, document, classifier or head."""


class ConflictError(ApiError):
    """409: what is stored differs from the request."""


class VersionError(ApiError):
    """412: a document has another version than the write requires; ``body`` has ``conflicts``."""


class OverloadedError(ApiError):
    """429: the service has no room, or the key exceeds its rate."""


class UnavailableError(ApiError):
    """503: the service is not ready, re-embeds the index, or cannot use its store."""


class DeadlineError(ApiError):
    """504: the deadline passed; ``with_timeout`` asks for more time."""


_CLASSES: dict[int, type[ApiError]] = {
    **dict.fromkeys((400, 413, 415, 422), BadRequestError),
    **dict.fromkeys((401, 403), AccessError),
    404: NotFoundError,
    409: ConflictError,
    412: VersionError,
    429: OverloadedError,
    503: UnavailableError,
    504: DeadlineError,
}


def of(response: httpx2.Response, retry_after: float | None) -> ApiError:
    """The error that an answer reports."""
    try:
        body = response.json()
    except ValueError:
        body = None
    fields = body if isinstance(body, dict) else {}
    message = fields.get("error")
    if isinstance(message, dict):
        # below /v1, as where a base URL of openai is given
        message = message.get("message")
    if not isinstance(message, str):
        message = (
            f"{response.reason_phrase or 'an error'}, not explained: a proxy may have answered"
        )
    return of_fields(response.status_code, {**fields, "error": message}, body, retry_after)


def of_fields(
    status: int, fields: Mapping[str, Any], body: Any = None, retry_after: float | None = None
) -> ApiError:
    """The error that ``error`` and ``error_type`` describe; without a ``body``, they are it."""
    made = _CLASSES.get(status, ApiError)
    kind = str(fields.get("error_type", ""))
    return made(status, fields["error"], kind, fields if body is None else body, retry_after)
