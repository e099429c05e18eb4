"""Spans of requests. The service always measures them, and sends them by OTLP if configured."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from docsplit.bundles.format import Bundle
    from docsplit.engines.choice import Choice
    from service.tracing.exporter import Tracing


def tracing(endpoint: str | None, ratio: float, bundle: Bundle, choice: Choice) -> Tracing | None:
    """The sender of spans; without an endpoint None, and nothing is imported.

    Raises:
        ValueError: the packages are not installed.
    """
    if endpoint is None:
        return None
    try:
        from service.tracing.exporter import Tracing
    except ImportError as error:
        raise ValueError(
            "otlp_endpoint (--otlp-endpoint, DOCSPLIT_OTLP_ENDPOINT): tracing needs "
            f"pip install 'docsplit[tracing]': {error}"
        ) from error
    attributes = {
        "docsplit.model": bundle.manifest.name,
        "docsplit.revision": bundle.manifest.revision,
        "docsplit.engine": choice.engine,
        "docsplit.precision": choice.arithmetic,
    }
    return Tracing(endpoint, ratio, version("docsplit"), attributes)
