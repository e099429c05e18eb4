"""Connects the cache that replicas share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import structlog

from docsplit.bundles.manifest import Manifest
from docsplit.engines.choice import Arithmetic
from service.embedding.cache.codec import Codec
from service.settings import Settings

if TYPE_CHECKING:
    from service.embedding.cache.shared import SharedCache

log = structlog.get_logger("docsplit")


def shared_cache(
    settings: Settings,
    manifest: Manifest,
    arithmetic: Arithmetic,
    on_error: Callable[[str], None],
) -> SharedCache | None:
    """The cache in Redis; None if the settings name none.

    Args:
        settings: of the service.
        manifest: of the served bundle.
        arithmetic: of the engine: its vectors stay apart from those of others.
        on_error: called with the kind of each error.
    """
    if settings.redis_url is None:
        return None
    # the client of Redis takes a while to import
    from service.embedding.cache.shared import SharedCache

    secret = settings.cache_secret
    codec = Codec(manifest.dimensions, None if secret is None else secret.get_secret_value())
    if not codec.signed:
        log.warning(
            "cache_not_authenticated",
            reason="anyone who can write to Redis can put wrong vectors into answers; set "
            "cache_secret. Until then, upserts and trainings do not use Redis",
        )
    return SharedCache(
        settings.redis_url.get_secret_value(),
        prefix=f"docsplit:{codec.label}:{manifest.revision[:32]}:{arithmetic}:",
        codec=codec,
        ttl=settings.redis_ttl,
        timeout=settings.redis_timeout,
        on_error=on_error,
    )
