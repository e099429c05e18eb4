"""When to send a request again, and after how long.

A 429, or a 503 with ``Retry-After``, means that the service did not begin, unless its store failed.
Any other failure may come after the work was done, so only idempotent requests are sent again.
"""

from __future__ import annotations

import random
import time
from email.utils import parsedate_to_datetime
from typing import Any

import httpx2

from docsplit_client import errors
from docsplit_client.call import Call

# seconds before the second try if the service names none; every further try doubles them
FIRST_WAIT = 0.5
# a service that asks for a longer wait gets no further try
LONGEST_WAIT = 60.0

# raised before a request is sent
_UNSENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
# a further try would fail in the same way, or take as long again
_FINAL = (
    httpx2.ReadTimeout,
    httpx2.LocalProtocolError,
    httpx2.UnsupportedProtocol,
    httpx2.DecodingError,
    httpx2.TooManyRedirects,
)


def retry_after(response: httpx2.Response) -> float | None:
    """Seconds that the answer asks to wait, from a number or a date; None without either."""
    stated = response.headers.get("retry-after", "")
    if stated.isascii() and stated.isdigit():
        return float(stated)
    try:
        return max(0.0, parsedate_to_datetime(stated).timestamp() - time.time())
    except ValueError:
        return None


def wait(
    call: Call[Any], outcome: httpx2.Response | httpx2.RequestError, tries: int, most: int
) -> float | None:
    """Seconds until the next try; None if there is none.

    Args:
        call: the request.
        outcome: its answer, or the failure of the connection.
        tries: how often it was sent.
        most: how often it may be sent.
    """
    if tries >= most or not _may_repeat(call, outcome):
        return None
    # clients that were refused together come back at different times
    own = FIRST_WAIT * 2.0 ** (tries - 1) * random.uniform(0.5, 1.0)  # noqa: S311
    stated = retry_after(outcome) if isinstance(outcome, httpx2.Response) else None
    if stated is None:
        return own
    return None if stated > LONGEST_WAIT else max(stated, own)


def may_be_done(outcome: httpx2.Response | httpx2.RequestError) -> bool:
    """Whether the service may have carried the request out, although no success came back."""
    if isinstance(outcome, httpx2.Response):
        if outcome.status_code != 503 or retry_after(outcome) is None:
            return outcome.status_code != 429
        # only the answer of the store to a write may be lost
        return errors.of(outcome, None).kind == "Store"
    return not isinstance(outcome, _UNSENT)


def _may_repeat(call: Call[Any], outcome: httpx2.Response | httpx2.RequestError) -> bool:
    if isinstance(outcome, httpx2.Response):
        passing = outcome.status_code in (429, 502, 503)
    else:
        passing = not isinstance(outcome, _FINAL)
    return passing and (call.idempotent or not may_be_done(outcome))
