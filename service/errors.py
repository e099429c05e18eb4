"""One hierarchy of errors: each says what was wrong, how to mend it, and which status it has.

``service.server.edge.errors`` answers requests with them; commands print their messages. An error
that belongs to one module stands there, as a subclass of one of these.
"""

from __future__ import annotations

import errno
import math
import re
from collections.abc import Mapping


class ServiceError(Exception):
    """An error that its message explains.

    Args:
        message: what was wrong and how to mend it; never the caller's text.
        param: field at fault (OpenAI dialect).
        code: machine-readable reason (OpenAI dialect), in place of the class's.
        headers: sent along.

    Attributes:
        status: HTTP status.
        kind: ``error_type`` of the native dialect.
        openai: ``type`` of the OpenAI dialect.

    A subclass names what differs behind its base, as in ``status=404``.
    """

    status = 500
    kind = "Backend"
    openai = "server_error"
    code: str | None = None
    param: str | None = None

    def __init__(
        self,
        message: str,
        param: str | None = None,
        *,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param or self.param
        self.code = code or self.code
        self.headers = dict(headers or {})

    def __init_subclass__(cls, **attributes: int | str) -> None:
        for name, value in attributes.items():
            setattr(cls, name, value)


class CommandError(ServiceError):
    """A command cannot be carried out."""


class RequestError(ServiceError, status=422, kind="Validation", openai="invalid_request_error"):
    """The request is at fault, and a change of it mends it."""


class InvalidError(RequestError):
    """A field has a wrong type or value."""


class MalformedError(RequestError, status=400):
    """The body cannot be read."""


class EmptyError(RequestError, status=400, kind="Empty"):
    """There is nothing to work on."""


class UnauthorizedError(
    RequestError, status=401, kind="Unauthorized", openai="authentication_error"
):
    """The request has no valid API key."""


class ForbiddenError(RequestError, status=403, kind="Forbidden", openai="permission_error"):
    """The API key does not allow this."""


class NotFoundError(RequestError, status=404, kind="NotFound", openai="not_found_error"):
    """There is no route, model, index, document, classifier or head of that name."""


class MethodError(RequestError, status=405, kind="MethodNotAllowed"):
    """The route does not take this method."""


class SlowBodyError(RequestError, status=408, kind="Timeout", openai="timeout_error"):
    """The body did not arrive in time."""


class ConflictError(RequestError, status=409, kind="Conflict"):
    """The stored thing belongs to another model, or differs from what was asked for."""


class VersionError(RequestError, status=412, kind="VersionMismatch"):
    """Documents have other versions than a write asked for.

    Attributes:
        present: the versions that stand, by id; None where there is no document.
        written: the versions of the documents that were written all the same, by id.
    """

    def __init__(
        self, present: Mapping[str, int | None], written: Mapping[str, int] | None = None
    ) -> None:
        super().__init__("a document has another version than the one that the write is for")
        self.present = present
        self.written = written or {}


class TooLargeError(RequestError, status=413, kind="TooLarge"):
    """A document, a batch, a training or the body is over its limit."""


class MediaTypeError(RequestError, status=415, kind="UnsupportedMediaType"):
    """The body is not plain JSON."""


class OverloadedError(
    ServiceError, status=429, kind="Overloaded", openai="rate_limit_error", code="overloaded"
):
    """The service has no room for more work of this client, or the key is over its rate.

    Args:
        retry_after: seconds until there should be room, by the measured rate.
        message: what is full, ending before "in N s".
        code: machine-readable reason.
    """

    def __init__(
        self,
        retry_after: float,
        message: str = "overloaded: too many tokens wait already, of this client or of all, to "
        "take this or to do it before its deadline; try again",
        code: str | None = None,
    ) -> None:
        wait = str(math.ceil(retry_after))
        super().__init__(f"{message} in {wait} s", code=code, headers={"retry-after": wait})
        self.retry_after = retry_after


class EngineFailedError(ServiceError):
    """The engine raised, or returned vectors that are not finite."""


class UnavailableError(ServiceError, status=503, kind="Unhealthy"):
    """This replica cannot answer now; another one may, so balancers ask it."""


class NotLoadedError(UnavailableError):
    """The model is not loaded yet."""

    def __init__(self) -> None:
        super().__init__(
            "the model is not loaded yet; /readyz tells when", headers={"retry-after": "1"}
        )


class BuildingError(UnavailableError, kind="Building", code="index_building"):
    """The index is not yet complete for the served bundle.

    Attributes:
        done: documents that are.
        total: documents of the index.
    """

    def __init__(self, done: int, total: int) -> None:
        super().__init__(
            "the index is being re-embedded for the served bundle: "
            f"{done:,} of {total:,} documents",
            headers={"retry-after": "5"},
        )
        self.done = done
        self.total = total


class StoreError(UnavailableError, kind="Store", code="store_unusable"):
    """Indexes and heads cannot be read or written where they should lie.

    Args:
        message: what was wrong and how to mend it.
        reason: for metrics: an errno's name, or ``gone``, ``sync``, ``torn``,
            ``damaged`` or ``unusable``.
    """

    def __init__(self, message: str, reason: str = "unusable") -> None:
        super().__init__(message)
        self.reason = reason


class DamagedError(StoreError):
    """What is stored of a document does not fit its checksums."""

    def __init__(self) -> None:
        super().__init__(
            "what is stored of this document is damaged and is not served: write the document "
            "again, or let the operator run docsplit-index repair on the index",
            "damaged",
        )


class UncertainError(StoreError):
    """A commit failed, and whether it stands cannot be told."""

    def __init__(self) -> None:
        super().__init__("it is not known whether the documents were written: read them")


class DeadlineError(ServiceError, status=504, kind="Timeout", code="deadline_exceeded"):
    """The deadline passed before the work was done; another replica would do the same again."""

    def __init__(self) -> None:
        super().__init__(
            "the work cannot be done before the deadline: send less, or ask for more time in the "
            "header x-request-timeout"
        )


_DISK = {
    "ENOSPC": "the volume of index_path is full: delete indexes, or make it larger",
    "EDQUOT": "the quota of index_path is used up: delete indexes, or raise it",
    "EROFS": "the volume of index_path is read-only, so nothing can be written",
    "EIO": "the volume of index_path fails: look at its disk",
    "ESTALE": "the volume of index_path was mounted anew: restart the service",
}
ERRNOS = tuple(_DISK)
# LanceDB has no type of its own for what the system refuses
_OS_ERROR = re.compile(r"\(os error (\d+)\)")

# what it says of files that are gone or damaged
_LANCE = re.compile(r"LanceError\((\w+)\)|^lance error: (Not found|Encountered corrupt file)")


def errno_name(error: OSError) -> str:
    """The system's name of an error, such as ENOSPC."""
    return errno.errorcode.get(error.errno or 0, "unknown")


def disk_fault(error: BaseException) -> StoreError | None:
    """The error as one of the volume, where it is one: full, read-only or failing."""
    name = errno_name(error) if isinstance(error, OSError) and error.errno else ""
    if name not in _DISK and (told := _OS_ERROR.search(str(error))):
        name = errno.errorcode.get(int(told[1]), "")
    return StoreError(_DISK[name], name) if name in _DISK else None


def lance_fault(error: BaseException) -> str | None:
    """What kind of fault LanceDB met in its files; None where the error is another one."""
    # a class that cannot be imported
    if type(error).__name__ == "RustPanic":
        return "panic"
    if not isinstance(error, RuntimeError | OSError | ValueError):
        return None
    found = _LANCE.search(str(error))
    return found and (found[1] or found[2])
