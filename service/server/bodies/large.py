"""Large bodies of JSON: counted before they are parsed, then parsed and validated by a thread.

No step blocks the event loop for long.

The event loop and the threads of one process share the interpreter lock. A call in C keeps the
lock until it returns, and the ``json`` module reads a string of 16 MB in one call.
"""

import codecs
import json
import re
from collections.abc import Callable, Coroutine, Iterator
from json.decoder import scanstring  # type: ignore[attr-defined]
from json.scanner import py_make_scanner  # type: ignore[attr-defined]
from typing import Any

from fastapi import Request
from fastapi.exceptions import HTTPException, RequestValidationError
from fastapi.responses import Response
from fastapi.routing import APIRoute
from starlette.types import Receive, Scope

from service import executors, precedence
from service.server.edge import deadline

# characters that one call reads
STEP = 1 << 16
# bytes counted in one step: a few milliseconds
COUNTED = 1 << 18
# the number of values is at most one more than the number of these
_MARKS = b",:[{"

# whole characters of a JSON string, so that no cut divides an escape or a surrogate pair
_CHARACTERS = re.compile(
    r"""(?: [^"\\]++ | \\["\\/bfnrt] | \\u(?![dD][89abAB])[0-9a-fA-F]{4}
    | \\u[dD][89abAB][0-9a-fA-F]{2} (?: \\u[0-9a-fA-F]{4} | (?=[^\\]) | (?=\\[^u]) ) )*+""",
    re.VERBOSE,
)
_LONGEST_ESCAPE = 12


def marks(part: bytes) -> int:
    """Count the marks in a part of a body, including those in strings."""
    return len(part) - len(part.translate(None, _MARKS))


def values(body: bytes) -> Iterator[int]:
    """Yield the number of values found so far, keys included, after every step; last the total.

    Args:
        body: JSON. For other bytes the number means nothing, and a parser refuses them.
    """
    found = 1
    inside = False
    carried = b""
    for start in range(0, len(body), COUNTED):
        part = carried + body[start : start + COUNTED]
        # an escape that a step cuts in two belongs to the next step
        backslashes = len(part) - len(part.rstrip(b"\\"))
        carried = part[-1:] if backslashes % 2 else b""
        part = part[:-1] if carried else part
        plain = part.replace(b"\\\\", b"").replace(b'\\"', b"")
        pieces = plain.split(b'"')
        outside = b"".join(pieces[int(inside) :: 2])
        found += marks(outside)
        # an even number of pieces has an odd number of quotes between them
        inside ^= len(pieces) % 2 == 0
        yield found


class BoundedRoute(APIRoute):
    """A route whose work ends at the request's deadline.

    A thread parses its large bodies, and the event loop gets the validated model.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        field = self.body_field

        async def handler(request: Request) -> Response:
            async with deadline.within(request):
                if field is not None and len(body := await request.body()) > precedence.LARGE:
                    model = await executors.BODIES.run(_model, body, field.validate)
                    request = _Read(request.scope, request.receive, body, model)
                return await handle(request)

        return handler


def _model(body: bytes, validate: Callable[..., tuple[Any, list[Any]]]) -> Any:
    try:
        value = parse(body)
    except json.JSONDecodeError as error:
        place = {"type": "json_invalid", "loc": ("body", error.pos)}
        raise RequestValidationError([place]) from error
    except (ValueError, RecursionError) as error:
        raise HTTPException(400) from error
    model, errors = validate(value, loc=("body",))
    if errors:
        raise RequestValidationError(errors)
    return model


class _Read(Request):
    """A request with a validated body; FastAPI gets the model in place of the parsed JSON."""

    def __init__(self, scope: Scope, receive: Receive, body: bytes, model: Any) -> None:
        super().__init__(scope, receive)
        self._body = body
        self._model = model

    async def json(self) -> Any:
        return self._model


def parse(body: bytes) -> Any:
    """Return the same as ``json.loads``, step by step.

    Raises:
        ValueError: as in ``json.loads``; the body is not JSON, or not in a Unicode encoding.
    """
    steps = (body[at : at + STEP] for at in range(0, len(body), STEP))
    text = "".join(codecs.iterdecode(steps, json.detect_encoding(body), "surrogatepass"))
    return _Decoder().decode(text)


class _Decoder(json.JSONDecoder):
    """The decoder in pure Python: another thread may run between any two values."""

    def __init__(self) -> None:
        super().__init__()
        self.parse_string = _string
        self.scan_once = py_make_scanner(self)


def _string(text: str, begin: int, strict: bool = True) -> tuple[str, int]:
    """Return the same as ``scanstring``: the string that starts at ``begin``, and its end."""
    parts: list[str] = []
    at = begin
    try:
        while True:
            cut = at + STEP
            end = text.find('"', at, cut)
            if text.find("\\", at, cut if end < 0 else end) >= 0:
                found = _CHARACTERS.match(text, at, cut)
                whole = found.end() if found else at
                # the whole characters end early at a quote or at a mistake
                end = whole if whole < cut - _LONGEST_ESCAPE else -1
                cut = whole
            if end >= 0 or cut >= len(text):
                part, end = scanstring(text, at, strict)
                return "".join([*parts, part]), end
            precedence.pause_thread()
            parts.append(scanstring(text[at:cut] + '"', 0, strict)[0])
            at = cut
    except json.JSONDecodeError as error:
        place = error.pos if error.doc is text else at + error.pos
        # the error names the start of a string that has no end
        place = begin - 1 if place < at else place
        raise json.JSONDecodeError(error.msg, text, place) from None
