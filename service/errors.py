"""One hierarchy of errors. Each has a status and says what was wrong and how to fix it.

``service.server.edge.errors`` turns them into answers. Commands print their messages. An error
that belongs to one module is defined there, as a subclass of one of these.
"""

import errno
import math
import re
from collections.abc import Mapping


class ServiceError(Exception):
    """An error whose message explains it.

    Args:
        message: says what was wrong and how to fix it; never contains the caller's text.
        param: the field at fault (OpenAI dialect).
        code: machine-readable reason (OpenAI dialect); replaces the class's own code.
        headers: sent with the answer.

    Attributes:
        kind: ``error_type`` of the native dialect.
        openai: ``type`` of the OpenAI dialect.

    A subclass gives its differences as class arguments, as in ``status=404``.
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
    """The command failed."""


class RequestError(ServiceError, status=422, kind="Validation", openai="invalid_request_error"):
    """The request is wrong; the client can fix it."""


class InvalidError(RequestError):
    """A field has a wrong type or value."""


class MalformedError(RequestError, status=400):
    """The body cannot be read."""


class EmptyError(RequestError, status=400, kind="Empty"):
    """There is no input."""


class UnauthorizedError(
    RequestError, status=401, kind="Unauthorized", openai="authentication_error"
):
    """The request has no valid API key."""


class ForbiddenError(RequestError, status=403, kind="Forbidden", openai="permission_error"):
    """The API key does not permit this."""


class NotFoundError(RequestError, status=404, kind="NotFound", openai="not_found_error"):
    """No route, model, index, document, classifier or head has that name."""


class MethodError(RequestError, status=405, kind="MethodNotAllowed"):
    """The route does not accept this method."""


class SlowBodyError(RequestError, status=408, kind="Timeout", openai="timeout_error"):
    """The body did not arrive in time."""


class ConflictError(RequestError, status=409, kind="Conflict"):
    """A stored object belongs to another model, or differs from the request."""


class VersionError(RequestError, status=412, kind="VersionMismatch"):
    """Documents do not have the versions that a write requires.

    Attributes:
        present: current versions by id; None where there is no document.
        written: versions of the documents that the service did write, by id.
    """

    def __init__(
        self, present: Mapping[str, int | None], written: Mapping[str, int] | None = None
    ) -> None:
        super().__init__("a document does not have the version that this write requires")
        self.present = present
        self.written = written or {}


class TooLargeError(RequestError, status=413, kind="TooLarge"):
    """A document, a batch, a training or the body exceeds its limit."""


class TooMuchError(TooLargeError, code="deadline_too_short"):
    """The engine cannot do the work of a request within its deadline, even if it does nothing else.

    Args:
        tokens: that are not in the cache.
        rate: tokens per second of the engine's fastest batch.
        seconds: until the deadline.
    """

    def __init__(self, tokens: int, rate: float, seconds: float) -> None:
        super().__init__(
            f"{tokens:,} tokens take at least {tokens / rate:,.0f} s at {rate:,.0f} a second, and "
            f"this request has {seconds:,.0f} s: send the texts in several requests or as lines of "
            "JSON (application/x-ndjson), or give more seconds in the header x-request-timeout. "
            "What is computed by now is in the cache, so a repetition gets further"
        )


class MediaTypeError(RequestError, status=415, kind="UnsupportedMediaType"):
    """The body is not plain JSON."""


class OverloadedError(
    ServiceError, status=429, kind="Overloaded", openai="rate_limit_error", code="overloaded"
):
    """The service has no room for more work of this client, or the key exceeds its rate.

    Args:
        retry_after: seconds until there should be room, from the measured rate.
        message: says what is full; the class adds "in N s".
        code: machine-readable reason.
    """

    def __init__(
        self,
        retry_after: float,
        message: str = "overloaded: too many tokens of this client or of all clients are waiting; "
        "this request has no room or cannot finish before its deadline; try again",
        code: str | None = None,
    ) -> None:
        wait = str(math.ceil(retry_after))
        super().__init__(f"{message} in {wait} s", code=code, headers={"retry-after": wait})
        self.retry_after = retry_after


class EngineFailedError(ServiceError):
    """The engine raised, or returned vectors that are not finite."""


class UnavailableError(ServiceError, status=503, kind="Unhealthy"):
    """This replica cannot answer now. Another one may, so balancers try it."""


class NotLoadedError(UnavailableError):
    """The model is not loaded yet."""

    def __init__(self) -> None:
        super().__init__(
            "the model is not loaded yet; /readyz shows when it is", headers={"retry-after": "1"}
        )


class BuildingError(UnavailableError, kind="Building", code="index_building"):
    """The index is not complete yet for the served bundle.

    Attributes:
        done: documents that are complete.
        total: all documents of the index.
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
    """The service cannot read or write indexes and heads at their path.

    Args:
        message: says what was wrong and how to fix it.
        reason: label for metrics: the name of an errno, or ``gone``, ``sync``, ``torn``,
            ``damaged`` or ``unusable``; of an object store also ``unreachable``, ``denied``,
            ``unsafe`` or ``unsupported``.
        headers: sent with the answer.
    """

    def __init__(
        self,
        message: str,
        reason: str = "unusable",
        *,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message, headers=headers)
        self.reason = reason


class DamagedError(StoreError):
    """A stored document does not match its checksums."""

    def __init__(self) -> None:
        super().__init__(
            "the stored document is damaged, so the service does not return it: write the document "
            "again, or restore a backup",
            "damaged",
        )


class UncertainError(StoreError):
    """A commit failed, and it is unknown whether it took effect."""

    def __init__(self) -> None:
        super().__init__("it is unknown whether the documents were written: read them")


class OvertakenError(StoreError):
    """Other writes came first each time, or the store wrote nothing."""

    def __init__(self) -> None:
        super().__init__(
            "other writes came first each time, or the store wrote nothing: read the documents, "
            "then try again"
        )


class DeadlineError(ServiceError, status=504, kind="Timeout", code="deadline_exceeded"):
    """The deadline passed before the work was done. Another replica would only repeat the work."""

    def __init__(self) -> None:
        super().__init__(
            "the work cannot be done before the deadline: send less, or ask for more time in the "
            "header x-request-timeout"
        )


_DISK = {
    "ENOSPC": "the volume of index_path is full: delete indexes, or enlarge the volume",
    "EDQUOT": "the quota of index_path is used up: delete indexes, or raise the quota",
    "EROFS": "the volume of index_path is read-only, so the service cannot write to it",
    "EIO": "the volume of index_path fails: check its disk",
    "ESTALE": "the volume of index_path was mounted again: restart the service",
}
ERRNOS = tuple(_DISK)
# further reasons of a store in a bucket
OBJECT_STORE = ("unreachable", "denied", "unsafe", "unsupported")
# LanceDB has no type of its own for errors of the operating system
_OS_ERROR = re.compile(r"\(os error (\d+)\)")

# LanceDB's messages for files that are missing or damaged
_LANCE = re.compile(r"LanceError\((\w+)\)|^lance error: (Not found|Encountered corrupt file)")


def errno_name(error: OSError) -> str:
    """The operating system's name of an error, such as ENOSPC."""
    return errno.errorcode.get(error.errno or 0, "unknown")


def disk_fault(error: BaseException) -> StoreError | None:
    """The error as a fault of the volume (full, read-only or failing); None for other errors."""
    name = errno_name(error) if isinstance(error, OSError) and error.errno else ""
    if name not in _DISK and (match := _OS_ERROR.search(str(error))):
        name = errno.errorcode.get(int(match[1]), "")
    return StoreError(_DISK[name], name) if name in _DISK else None


def lance_fault(error: BaseException) -> str | None:
    """The kind of fault that LanceDB met in its files; None for other errors."""
    # this class cannot be imported
    if type(error).__name__ == "RustPanic":
        return "panic"
    if not isinstance(error, RuntimeError | OSError | ValueError):
        return None
    found = _LANCE.search(str(error))
    return found and (found[1] or found[2])
