"""Get vectors from a running service."""

import base64
import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Any

import numpy as np

from training.errors import SettingsError
from training.evaluation.encoders.interface import Reading, Vectors

KEY_VARIABLE = "DOCSPLIT_KEY"
_TIMEOUT_SECONDS = 600
_TRIES = 20
_MOST_WAIT = 30.0


class ServiceEncoder:
    """The vectors that a service returns. The service cuts windows and pools them.

    The environment variable ``DOCSPLIT_KEY`` holds the bearer key.

    Args:
        url: address of the service, such as ``http://localhost:8080``.
        name: its name in the report; default the model's name.

    Raises:
        SettingsError: no docsplit service answers at the address.
    """

    kind = "service"

    def __init__(self, url: str, name: str | None = None) -> None:
        self._url = url.rstrip("/")
        info = self._read("/info", None)
        try:
            engine = info["engine"] or {}
            precision = engine.get("precision", info["model_dtype"])
            runtime = engine.get("name", "unknown")
            self.name = name or str(info["model_id"])
            self.revision = f"service-{info['model_sha']}-{runtime}-{precision}"
            self.details = {
                "model": str(info["model_id"]),
                "revision": str(info["model_sha"])[:12],
                "window": f"{info['window_tokens']} tokens",
                "arithmetic": f"{precision}, {runtime}",
            }
        except (KeyError, TypeError, AttributeError):
            raise SettingsError(f"{url}: not a docsplit service (its /info differs)") from None

    def encode(self, texts: Sequence[str], reading: Reading) -> Vectors:
        """Unit vectors, float32 ``[texts, dimensions]``.

        Raises:
            SettingsError: the service refuses. The message contains its answer.
        """
        body = {
            "inputs": list(texts),
            "truncate": reading == "first",
            "encoding_format": "base64",
        }
        answer = self._read("/embed", body)
        rows = [np.frombuffer(base64.b64decode(vector), dtype="<f4") for vector in answer]
        return np.stack(rows).astype(np.float32)

    def _read(self, path: str, body: Any) -> Any:
        for tried in range(_TRIES):
            try:
                with urllib.request.urlopen(self._request(path, body), timeout=_wait()) as answer:  # noqa: S310
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                if error.code in (429, 503, 504) and tried + 1 < _TRIES:
                    time.sleep(min(_MOST_WAIT, float(error.headers.get("Retry-After", 1))))
                    continue
                raise SettingsError(f"{self._url}{path}: {_said(error)}") from None
            except (OSError, ValueError) as error:
                reason = getattr(error, "reason", error)
                raise SettingsError(f"{self._url}{path}: no answer ({reason})") from None
        raise AssertionError("the last try raises")

    def _request(self, path: str, body: Any) -> urllib.request.Request:
        headers = {
            "content-type": "application/json",
            "x-request-timeout": str(_TIMEOUT_SECONDS),
        }
        key = os.environ.get(KEY_VARIABLE)
        if key:
            headers["authorization"] = f"Bearer {key}"
        data = None if body is None else json.dumps(body).encode()
        return urllib.request.Request(self._url + path, data, headers)  # noqa: S310 - http or https, as opening checks


def _wait() -> float:
    return _TIMEOUT_SECONDS + 10


def _said(error: urllib.error.HTTPError) -> str:
    try:
        said = json.load(error).get("error", error.reason)
    except (ValueError, AttributeError):
        said = error.reason
    hints = {
        401: f"; set {KEY_VARIABLE}",
        413: "; start the service with a higher --max-document-tokens or --max-body-bytes",
    }
    return f"{error.code} {said}{hints.get(error.code, '')}"
