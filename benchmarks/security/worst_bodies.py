"""The worst valid and invalid bodies of the largest size for each route.

``tests/service/test_amplification.py`` bounds their memory.
``benchmarks/security/amplification.py`` prints memory, time and latency of other clients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from docsplit.bundles.format import DEFAULT_BUNDLE

# a little below max_body_bytes, which bounds the whole body
SIZE = 16_000_000
LINES = 60_000


@dataclass(frozen=True, slots=True)
class Attack:
    """One request.

    Attributes:
        route: its name in the OpenAPI document.
        name: why the body is bad.
        body: makes the body, with at most ``SIZE`` bytes.
        kind: its media type.
        first: whether to send it to this route even if another route with the same checks gets the
            other bodies.
    """

    method: str
    route: str
    name: str
    body: Callable[[], bytes]
    first: bool = True
    kind: str = "application/json"

    @property
    def path(self) -> str:
        """The route to the index or classifier ``worst``, its document ``a``, or an alias."""
        return self.route.format(name="worst", document_id="a", alias="alias")


def _repeated(unit: str, size: int = SIZE) -> bytes:
    encoded = unit.encode()
    return encoded * (size // len(encoded))


def _string(unit: str, size: int = SIZE - 1000, first: str = "") -> bytes:
    return b'"' + first.encode() + _repeated(unit, size) + b'"'


def _list(item: bytes, size: int = SIZE - 1000) -> bytes:
    count = max(1, size // (len(item) + 1))
    return b"[" + item + (b"," + item) * (count - 1) + b"]"


# texts that a schema allows: one document, or many
TEXTS: dict[str, Callable[[], bytes]] = {
    "exclamation marks": lambda: _string("!"),
    "Chinese without blanks": lambda: _string("漢字"),
    "one endless word": lambda: _string("a"),
    "one endless word of wide characters": lambda: _string("a", first="😀"),
    "combining marks": lambda: _string("\u0301", first="a"),
    "words of 101 letters": lambda: _string("a" * 101 + " "),
    "escaped characters": lambda: _string("\\u6f22"),
    "line ends": lambda: _string(".\\n"),
    "open quotes": lambda: _string("“a. b "),
}
MANY_TEXTS: dict[str, Callable[[], bytes]] = {
    "2,000 texts of punctuation": lambda: _list(_string("!", 7_900)),
    "60 texts of 250,000 tokens": lambda: _list(_string("!", 250_000)),
}
OBJECTS = "empty objects within the limit of values"
MANY_KEYS = "an object of many keys"
# values that a schema forbids
JUNK: dict[str, Callable[[], bytes]] = {
    "zeros": lambda: _list(b"0"),
    "zeros within the limit of values": lambda: _list(b"0", 500_000),
    "empty lists": lambda: _list(b"[]"),
    OBJECTS: lambda: _list(b"{}", 390_000),
    "short strings": lambda: _list(b'"ab"'),
    "lists within lists": lambda: b"[" * (SIZE // 2) + b"]" * (SIZE // 2),
    "one number": lambda: b"9" * SIZE,
    MANY_KEYS: lambda: b"{" + b",".join(b'"%d":0' % key for key in range(LINES)) + b"}",
}


QUERIES: dict[str, Callable[[], bytes]] = {
    "64 queries of 240,000 tokens": lambda: _list(b'{"text":' + _string("!", 240_000) + b"}"),
    "more queries than the limit": lambda: _list(b'{"id":"a"}', 900_000),
}


def _documents(content: bytes, document_bytes: int, size: int = SIZE - 100_000) -> bytes:
    count = max(1, min(2048, size // (document_bytes + 20)))
    items = (b'{"id":"%d",%s}' % (number, content) for number in range(count))
    return b'{"documents":[' + b",".join(items) + b"]}"


def _metadata(keys: int, value: bytes) -> bytes:
    return (
        b'"text":"a","metadata":{' + b",".join(b'"%d":%s' % (k, value) for k in range(keys)) + b"}"
    )


def _sized(content: bytes) -> bytes:
    return _documents(content, len(content))


DOCUMENTS: dict[str, Callable[[], bytes]] = {
    "texts of punctuation": lambda: _sized(b'"text":' + _string("!", 7_700)),
    "texts of Chinese": lambda: _sized(b'"text":' + _string("漢字", 700_000)),
    "one endless word": lambda: _sized(b'"text":' + _string("a", SIZE - 200_000)),
    "long titles": lambda: _sized(b'"text":"a","title":' + _string("漢", 7_700)),
    "many links": lambda: _sized(b'"text":"a","links":' + _list(b'"b"', 39_000)),
    "many metadata": lambda: _sized(_metadata(60, b"0.1")),
    "long metadata": lambda: _sized(_metadata(1, _string("漢", 7_500))),
    "one long title": lambda: _sized(b'"text":"a","title":' + _string("a", SIZE - 200_000)),
    "one long metadata key": lambda: _sized(
        b'"text":"a","metadata":{' + _string("k", SIZE - 200_000) + b":0}"
    ),
    "lists in metadata": lambda: _sized(_metadata(60, b"[" + b'"a",' * 255 + b'"a"]')),
    "empty documents": lambda: b'{"documents":' + _list(b"{}", 390_000) + b"}",
    "more documents than the limit": lambda: (
        b'{"documents":[' + b",".join(b'{"id":"%d","text":"a"}' % n for n in range(LINES)) + b"]}"
    ),
}


def _labels(number: int, each: Callable[[int], bytes]) -> bytes:
    return b",".join(each(position) for position in range(number))


TRAININGS: dict[str, Callable[[], bytes]] = {
    "many labels": lambda: (
        b'{"inputs":["a","b","c","d"],"multi_label":true,"labels":['
        + b",".join([b"[" + _labels(LINES, lambda n: b'"%d"' % n) + b"]"] * 2 + [b'["a"]'] * 2)
        + b"]}"
    ),
    "many examples": lambda: (
        b'{"inputs":'
        + _list(b'"a"', 4 * 80_000)
        + b',"labels":['
        + _labels(80_000, lambda n: b'"%d"' % (n % 2))
        + b"]}"
    ),
    "a label for every two examples": lambda: (
        b'{"inputs":'
        + _list(b'"a"', 4 * 40_000)
        + b',"labels":['
        + _labels(40_000, lambda n: b'"%d"' % (n // 2))
        + b"]}"
    ),
    "long texts": lambda: b'{"inputs":' + _list(_string("!", 250_000)) + b',"labels":["a","b"]}',
    "many ids": lambda: (
        b'{"index":"worst","ids":['
        + _labels(60_000, lambda n: b'"%d"' % n)
        + b'],"labels":['
        + _labels(60_000, lambda n: b'"%d"' % (n % 2))
        + b"]}"
    ),
}


def _filters() -> dict[str, Callable[[], bytes]]:
    condition = b'{"field":"a","eq":1}'
    return {
        "a wide filter": lambda: b'{"and":' + _list(condition, 1_700_000) + b"}",
        "a filter of filters": lambda: (
            b'{"and":' + _list(b'{"or":' + _list(condition, 1_300) + b"}", 80_000) + b"}"
        ),
        "a deep filter": lambda: b'{"not":' * 900 + condition + b"}" * 900,
        "a filter of many values": lambda: b'{"field":"a","in":' + _list(b"[]", 390_000) + b"}",
    }


FORM = "multipart/form-data; boundary=x"
_PART = b'--x\r\ncontent-disposition: form-data; name="files"; filename="%s"\r\n\r\n'
FORMS: dict[str, Callable[[], bytes]] = {
    # what begins like a boundary goes through the parser byte by byte
    "a file of line ends": lambda: _PART % b"a.txt" + b"\r" * SIZE + b"\r\n--x--\r\n",
    "a file of half boundaries": lambda: (
        _PART % b"a.txt" + b"\r\n--" * (SIZE // 4) + b"\r\n--x--\r\n"
    ),
    "many files": lambda: b"".join(_PART % b"%d.txt" % n + b"\r\n" for n in range(LINES)),
    "one header": lambda: b"--x\r\n" + b"a" * SIZE,
    "one file name": lambda: _PART % (b"a" * SIZE),
}


_MODEL = f'{{"model":"{DEFAULT_BUNDLE.name}",'.encode()
# the field of a route for texts, and other fields that its body needs
_TEXT_FIELDS = [
    ("/embed", b'{"inputs":%s}'),
    ("/", b'{"inputs":%s}'),
    ("/v1/embeddings", _MODEL + b'"input":%s}'),
    ("/classify", b'{"inputs":%s}'),
    ("/predict", b'{"inputs":%s}'),
    ("/similarity", b'{"inputs":{"source_sentence":"a","sentences":%s}}'),
    ("/rerank", b'{"query":"a","texts":%s}'),
    ("/rerank", b'{"query":"a","documents":%s}'),
    ("/v1/rerank", b'{"query":"a","documents":%s}'),
    ("/v2/rerank", b'{"query":"a","documents":%s}'),
    ("/v2/embed", _MODEL + b'"input_type":"clustering","texts":%s}'),
]
_ONE_TEXT_FIELDS = [
    ("/embed", b'{"truncate":true,"inputs":%s}'),
    ("/embed", b'{"truncate":true,"truncation_direction":"left","inputs":%s}'),
    ("/similar", b'{"index":"worst","mode":"hybrid","text":%s}'),
    ("/passages", b'{"index":"worst","text":%s}'),
    ("/indexes/{name}/duplicates", b'{"text":%s}'),
    ("/indexes/{name}/compare", b'{"other":"a","text":%s}'),
    ("/rerank", b'{"texts":["a"],"query":%s}'),
]
_LIST_FIELDS = [
    ("POST", "/v2/embed", b'{"model":"a","input_type":"clustering","inputs":%s}'),
    ("POST", "/v2/embed", b'{"model":"a","input_type":"clustering","embedding_types":%s}'),
    ("POST", "/indexes/{name}/documents", b'{"documents":%s}'),
    ("PATCH", "/indexes/{name}/documents/{document_id}", b'{"metadata":%s}'),
    ("PATCH", "/indexes/{name}/documents/{document_id}", b'{"links":%s}'),
    ("POST", "/indexes/{name}/documents/get", b'{"ids":%s}'),
    ("POST", "/indexes/{name}/compare", b'{"text":"a","other":%s}'),
    ("POST", "/indexes/{name}/documents/delete", b'{"ids":%s}'),
    ("POST", "/indexes/{name}/links/find", b'{"rules":%s}'),
    ("POST", "/indexes/{name}/links/find", b'{"fields":%s}'),
    ("POST", "/similar", b'{"index":"worst","queries":%s}'),
    ("POST", "/similar", b'{"index":"worst","text":"a","exclude":%s}'),
    ("POST", "/similar", b'{"index":"worst","text":"a","facets":%s}'),
    ("PUT", "/indexes/{name}", b'{"fields":%s}'),
    ("PUT", "/aliases/{alias}", b'{"index":%s}'),
    ("PUT", "/classifiers/{name}", b'{"inputs":["a"],"labels":%s}'),
    ("POST", "/classifiers/{name}/labels", b'{"index":"worst","documents":%s}'),
    (
        "POST",
        "/classifiers/{name}/labels",
        b'{"index":"worst","documents":[{"id":"a","labels":%s}]}',
    ),
    ("PUT", "/classifiers/{name}", b'{"labels":["a"],"inputs":%s}'),
    ("PUT", "/classifiers/{name}", b'{"index":"worst","ids":%s,"labels":["a"]}'),
]
# names of the JUNK that passes the count of values and reaches validation
FORBIDDEN = {
    "zeros within the limit of values",
    OBJECTS,
    MANY_KEYS,
}


def attacks() -> Iterator[Attack]:
    """Yield the worst requests to every route that takes a body."""

    def filled(template: bytes, make: Callable[[], bytes]) -> Callable[[], bytes]:
        # % appears in a template only as its placeholder
        return lambda: template.replace(b"%s", make())

    for route, template in _TEXT_FIELDS:
        texts = TEXTS if route in ("/embed", "/") else {}
        for name, make in (texts | MANY_TEXTS | JUNK).items():
            first = route == "/embed" if name in TEXTS or name in MANY_TEXTS else name in FORBIDDEN
            yield Attack("POST", route, name, filled(template, make), first or route == "/embed")
    for route, template in _ONE_TEXT_FIELDS:
        for name, make in TEXTS.items():
            title = f"{template[:40].decode()}: {name}"
            first = name == "one endless word of wide characters" or "line ends" in name
            yield Attack("POST", route, title, filled(template, make), first)
    for name, make in _filters().items():
        body = b'{"index":"worst","text":"a","filter":%s}'
        yield Attack("POST", "/similar", name, filled(body, make))
        yield Attack("POST", "/passages", name, filled(body, make), first=False)
        body = b'{"index":"worst","filter":%s}'
        yield Attack("POST", "/classifiers/{name}/suggest", name, filled(body, make))
        body = b'{"dry_run":true,"filter":%s}'
        yield Attack("POST", "/indexes/{name}/documents/delete", name, filled(body, make), False)
    for name, make in JUNK.items():
        for method, route, body in _LIST_FIELDS:
            title = f"{body.decode()}: {name}"
            yield Attack(method, route, title, filled(body, make), name in FORBIDDEN)
    queries = b'{"index":"worst","top_k":1,"queries":%s}'
    for name, make in QUERIES.items():
        yield Attack("POST", "/similar", name, filled(queries, make))
    for name, make in DOCUMENTS.items():
        yield Attack("POST", "/indexes/{name}/documents", name, make)
    for name, make in TRAININGS.items():
        yield Attack("PUT", "/classifiers/{name}", name, make)
    for name, make in FORMS.items():
        yield Attack("POST", "/indexes/{name}/files", name, make, kind=FORM)
        yield Attack("POST", "/read", name, make, kind=FORM)
