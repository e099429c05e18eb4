"""Every accepted document is served unchanged, by every route that serves documents."""

from __future__ import annotations

import asyncio
import json
import math
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import NIGHTLY, Server, examples
from tests.index.conftest import FIELDS, call, place
from tests.index.processes import Replicas, copy, record

# all values of JSON: half surrogate pairs, integers of any size, NaN and infinity
ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=12)
ANY_SCALAR = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(2**63 - 2, 2**64 + 1)
    | st.integers(-(2**63) - 2, -(2**63) + 2)
    | st.just(10**400)
    | st.floats()
    | ANY_TEXT
)
ANY_VALUE = (
    ANY_SCALAR
    | st.lists(ANY_SCALAR, max_size=2)
    | st.dictionaries(ANY_TEXT, ANY_SCALAR, max_size=2)
)
ANY_DOCUMENT = st.fixed_dictionaries(
    {"id": ANY_TEXT, "text": ANY_TEXT.map(lambda tail: "word " + tail)},
    optional={
        "title": ANY_TEXT | st.none(),
        "metadata": st.dictionaries(
            ANY_TEXT | st.sampled_from(sorted(FIELDS)), ANY_VALUE, max_size=4
        ),
        "links": st.lists(ANY_TEXT, max_size=2),
    },
)

# accepted values
ID = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=12).filter(
    lambda name: name not in (".", "..")
)
METADATA = st.dictionaries(
    st.text(min_size=1, max_size=12).map(lambda key: "k" + key),
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=12)
    | st.lists(st.text(max_size=12), max_size=3),
    max_size=3,
)
TITLE = st.none() | st.text(max_size=12)
DOCUMENT = st.fixed_dictionaries(
    {"id": ID, "text": st.text(max_size=12).map(lambda tail: "word " + tail)},
    optional={"title": TITLE, "metadata": METADATA, "links": st.lists(ID, max_size=2)},
)
ODD = {
    "id": "../a b/./?#%2f\u2028é\U0001f600",
    "text": "word \x00 \ud7ff \uffff \x85 end",
    "title": "\x00\x1f\u2028\U0001f600\uffff",
    "metadata": {
        "\x00": "\x00\x7f",
        "'\"\\": "\\ud800",
        "\U0001f600": "e\u0301",
        "least": -(2**63),
        "most": 2**63 - 1,
        "zero": -0.0,
        "tiny": 5e-324,
        "huge": 1.7976931348623157e308,
        "nothing": None,
        "year": 2**63 - 1,
        "weight": 2**63 - 1,
        "status": "\x00'\U0001f600",
        "draft": False,
    },
    "links": ["../a b/./?#%2f\u2028é\U0001f600", "nowhere"],
}


@pytest.fixture(scope="module")
def held(server: Server) -> Iterator[str]:
    """A separate index."""
    name = f"t-{uuid.uuid4().hex[:12]}"
    call(server, "PUT", f"/indexes/{name}", {"fields": FIELDS}, status=201)
    yield name
    httpx.delete(f"{server.url}/indexes/{name}")


def same(value: Any, other: Any) -> bool:
    """Whether two JSON values are equal, with their types and the sign of zero."""
    return json.dumps(value, sort_keys=True) == json.dumps(other, sort_keys=True)


def test_odd_values_are_served(server: Server, held: str) -> None:
    _round_trip(server, held, [ODD], (200,))


@examples(8 if NIGHTLY else 3)
@given(documents=st.lists(DOCUMENT, min_size=1, max_size=3, unique_by=lambda d: str(d["id"])))
def test_documents_are_served(server: Server, held: str, documents: list[dict[str, Any]]) -> None:
    _round_trip(server, held, documents, (200,))


@examples(25 if NIGHTLY else 18)
@given(documents=st.lists(ANY_DOCUMENT, min_size=1, max_size=2))
def test_every_accepted_document_is_served(
    server: Server, held: str, documents: list[dict[str, Any]]
) -> None:
    _round_trip(server, held, documents, (200, 422))


def _round_trip(
    server: Server, held: str, documents: list[dict[str, Any]], statuses: tuple[int, ...]
) -> None:
    with httpx.Client(timeout=60) as client:
        # json.dumps writes values that strict encoders refuse
        content = json.dumps({"documents": documents})
        kind = {"content-type": "application/json"}
        answer = client.post(place(server, held), content=content, headers=kind)
        assert answer.status_code in statuses, answer.text
        if answer.status_code == 200:
            for document, version in zip(documents, answer.json()["versions"], strict=True):
                whole = {"title": None, "metadata": {}, "links": [], "version": version} | document
                _served(client, server, held, whole)
                client.delete(place(server, held, document["id"])).raise_for_status()
        page = client.get(place(server, held))
        assert page.json() == {"documents": [], "next": None}


def _served(client: httpx.Client, server: Server, index: str, whole: dict[str, Any]) -> None:
    got = client.get(place(server, index, whole["id"]))
    assert got.status_code == 200, got.text
    assert same(got.json(), whole)
    page = client.get(place(server, index)).json()["documents"]
    head = {key: whole[key] for key in ("id", "title", "metadata", "version")}
    assert any(same(listed, head) for listed in page)
    for mode in ("cosine", "words", "hybrid"):
        for query in ({"text": whole["text"], "explain": True}, {"text": "word"}):
            body = {"index": index, "mode": mode, **query}
            hits = client.post(f"{server.url}/similar", json=body)
            assert hits.status_code == 200, hits.text
            [hit] = [hit for hit in hits.json() if hit["id"] == whole["id"]]
            assert same([hit["title"], hit["metadata"]], [whole["title"], whole["metadata"]])
    by_id = {"index": index, "id": whole["id"], "explain": True}
    assert client.post(f"{server.url}/similar", json=by_id).status_code == 200


def accepted(metadata: dict[str, Any]) -> bool:
    """Whether the documentation promises to accept metadata."""

    def text(value: str) -> bool:
        return not any("\ud800" <= character <= "\udfff" for character in value)

    def storable(value: Any) -> bool:
        if isinstance(value, str):
            return text(value)
        if isinstance(value, float):
            return math.isfinite(value)
        if isinstance(value, list):
            return all(isinstance(item, str) and text(item) for item in value)
        whole = isinstance(value, int) and -(2**63) <= value < 2**63
        return value is None or whole

    return all(0 < len(key) <= 64 and text(key) for key in metadata) and all(
        map(storable, metadata.values())
    )


@examples(40 if NIGHTLY else 12)
@given(metadata=METADATA | st.dictionaries(ANY_TEXT, ANY_VALUE, max_size=2))
def test_promised_metadata_is_accepted(server: Server, held: str, metadata: dict[str, Any]) -> None:
    content = json.dumps({"documents": [{"id": "a", "text": "word", "metadata": metadata}]})
    kind = {"content-type": "application/json"}
    answer = httpx.post(place(server, held), content=content, headers=kind, timeout=60)
    declared = metadata.keys() & FIELDS.keys()
    if not declared:
        assert (answer.status_code == 200) is accepted(metadata), answer.text
    if answer.status_code == 200:
        httpx.delete(place(server, held, "a")).raise_for_status()


@examples(5 if NIGHTLY else 3)
@given(
    documents=st.lists(
        st.tuples(ID, st.text(max_size=12), TITLE, METADATA),
        min_size=8,
        max_size=8,
        unique_by=lambda document: document[0],
    )
)
def test_reembedding_keeps_documents(
    tmp_path_factory: pytest.TempPathFactory,
    documents: list[tuple[str, str, str | None, dict[str, Any]]],
) -> None:
    asyncio.run(_reembedded(tmp_path_factory.mktemp("reembedded"), documents))


async def _reembedded(
    path: Path, documents: list[tuple[str, str, str | None, dict[str, Any]]]
) -> None:
    former, own = await Replicas(path).pair()
    await former.put(
        [
            replace(record(name, text), title=title, metadata=metadata)
            for name, text, title, metadata in documents
        ]
    )
    await copy(own, former)
    for name, text, title, metadata in documents:
        kept, given = await own.get(name), await former.get(name)
        assert (kept.text, kept.title, kept.updated) == (text, title, given.updated)
        assert same(json.loads(kept.metadata), metadata)
