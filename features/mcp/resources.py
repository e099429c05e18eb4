"""Resources: an index as JSON, and the whole text of a document."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from pydantic import TypeAdapter

from features.mcp.arguments import MOST_RESULTS, IndexName
from features.mcp.inner import Caller, RefusedError
from service.server.bodies.names import Identifier

SCHEME = "docsplit"
TEMPLATE = f"{SCHEME}://{{index}}/{{id}}"

_INDEX: TypeAdapter[str] = TypeAdapter(IndexName)
_ID: TypeAdapter[str] = TypeAdapter(Identifier)


async def indexes(caller: Caller, after: str | None) -> tuple[list[str], str | None]:
    """A page of the names of the indexes that the key may use, and what leads to the next one.

    Args:
        after: the last name of the page before; None for the first page.
    """
    found: list[str] = (await caller.get("indexes"))["indexes"]
    left = [name for name in found if after is None or name > after]
    page = left[:MOST_RESULTS]
    return page, page[-1] if len(left) > len(page) else None


def uri(index: str, name: str | None = None) -> str:
    """The address of an index, or of a document of it."""
    return f"{SCHEME}://{index}" if name is None else f"{SCHEME}://{index}/{quote(name, safe='')}"


async def read(caller: Caller, address: str) -> tuple[str, str]:
    """The media type and the text of a resource.

    Raises:
        RefusedError: the address is wrong, or a route refused the request.
    """
    try:
        # of a wrong host, urlsplit raises ValueError, as a ValidationError is
        parts = urlsplit(address)
        index = _INDEX.validate_python(parts.netloc)
        given = unquote(parts.path[1:], errors="strict")
        name = _ID.validate_python(given) if given else None
        other = parts.scheme != SCHEME or bool(parts.query or parts.fragment)
    except ValueError:
        other = True
    if other:
        raise RefusedError(f"give an address of the form {TEMPLATE}, percent-encoded") from None
    if name is None:
        return "application/json", json.dumps(await caller.get("indexes", index))
    return "text/plain", (await document(caller, index, name))["text"]


async def document(caller: Caller, index: str, name: str) -> dict[str, Any]:
    """A document with its text, as GET /indexes/{name}/documents/{id} answers.

    Raises:
        RefusedError: there is none; the route of an id such as ``a/links`` may be another one.
    """
    found: dict[str, Any] = await caller.get("indexes", index, "documents", name)
    if "text" not in found:
        raise RefusedError("there is no document of that id in this index")
    return found
