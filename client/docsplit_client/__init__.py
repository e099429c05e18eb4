"""Client of the docsplit service.

``Client`` blocks, ``AsyncClient`` has the same methods as coroutines.
"""

from docsplit_client.clients import AsyncClient, Client
from docsplit_client.errors import (
    AccessError,
    ApiError,
    BadRequestError,
    ConflictError,
    DeadlineError,
    DocsplitError,
    NotFoundError,
    OverloadedError,
    UnavailableError,
    UnreachableError,
    VersionError,
)

__all__ = [
    "AccessError",
    "ApiError",
    "AsyncClient",
    "BadRequestError",
    "Client",
    "ConflictError",
    "DeadlineError",
    "DocsplitError",
    "NotFoundError",
    "OverloadedError",
    "UnavailableError",
    "UnreachableError",
    "VersionError",
]
