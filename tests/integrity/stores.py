"""A small store with every kind of file, made in this process, and checks of its answers."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np

from docsplit.heads.examples import Examples
from docsplit.heads.network import Network
from docsplit.windowing.pooling import Vectors, normalise
from service.bulk.check import check
from service.bulk.verifying import Report
from service.embedding.embedder import Document
from service.index import commits
from service.index.documents import Index, windows_by_id
from service.index.indexes import Indexes, Model, connect
from service.index.maintenance import optimize
from service.index.query import search
from service.index.query.reading import Query
from service.index.rows.checksums import Part
from service.index.rows.fields import FieldType
from service.index.rows.records import Record, encoded
from service.index.rows.vectors import vector_matrix
from service.learning.heads import Head, Heads

REVISION = "a" * 64
DIMENSIONS = 8
WINDOW = 40
MODEL = Model("model", REVISION, DIMENSIONS)
FIELDS: dict[str, FieldType] = {"year": "integer", "draft": "boolean"}


def vector(text: str) -> Vectors:
    """A unit vector that depends only on the text."""
    seed = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "little")
    drawn = np.random.default_rng(seed).standard_normal(DIMENSIONS).astype(np.float32)
    return normalise(drawn)


def embedded(text: str) -> Document:
    """A document like the embedder's, with vectors by ``vector``."""
    ends = [*range(WINDOW, len(text), WINDOW), len(text)]
    starts = [0, *ends[:-1]]
    parts = np.stack([vector(text[a:b]) for a, b in zip(starts, ends, strict=True)])
    made = SimpleNamespace(
        vector=lambda: parts.mean(axis=0),
        matrix=lambda: parts,
        windows=[SimpleNamespace(end=end) for end in ends],
    )
    return cast(Document, made)


async def embed(texts: Sequence[str]) -> list[Document]:
    return [embedded(text) for text in texts]


def text_of(name: str) -> str:
    return f"The document {name} speaks of {name} at some length, in words of its own: " + name * 5


def record(name: str, text: str | None = None) -> Record:
    text = text or text_of(name)
    metadata = {"year": len(name) * 100, "draft": name.endswith("3"), "note": f"of {name}"}
    return Record(name, text, f"Title {name}", metadata, ["x-1"], encoded(embedded(text)))


async def open_indexes(root: Path) -> Indexes:
    databases = [await connect(f"{root}/{part}") for part in ("indexes", "leases")]
    return Indexes(databases[0], databases[1], MODEL)


async def make(root: Path) -> None:
    """Indexes ``x`` and ``y``, and a classifier."""
    indexes = await open_indexes(root)
    await indexes.create("deleted", {})
    await indexes.drop("deleted")
    for name in ("x", "y"):
        await indexes.create(name, dict(FIELDS))
        index = await indexes.open(name)
        for part in range(2):
            await index.put([record(f"{name}-{n}") for n in range(part * 8, part * 8 + 8)])
        await optimize(index.table)
        await index.put([record(f"{name}-{n}", f"a later text of {name}-{n}") for n in (1, 2)])
        await commits.delete_everywhere(indexes, name, index.identity.uid, [f"{name}-5"])
        await index.put([record(f"{name}-new-{n}") for n in range(4)])
    heads = Heads(await connect(f"{root}/heads"), "classifiers", "classifier")
    weights = (np.ones((DIMENSIONS, 2), np.float32),)
    network = Network(weights, (np.zeros(2, np.float32),), 1.0, "softmax")
    examples = Examples(["good", "bad"], [["a"], ["b"]])
    await heads.put(Head("c", "uid", REVISION, ["a", "b"], {"labels": {}}, network), examples)


def right(name: str) -> str | None:
    """The text of a document that ``make`` wrote; None if it deleted the document."""
    _, _, number = name.partition("-")
    if number == "5":
        return None
    return f"a later text of {name}" if number in ("1", "2") else text_of(name)


@cache
def made_for(name: str) -> Record:
    """What ``make`` wrote for a document that it did not delete."""
    text = right(name)
    assert text is not None
    return record(name, text)


def names(index: str) -> list[str]:
    """Ids of all documents of an index."""
    held = [f"{index}-{n}" for n in range(16)] + [f"{index}-new-{n}" for n in range(4)]
    return [name for name in held if right(name) is not None]


def copy(store: Path, place: Path) -> Path:
    shutil.rmtree(place, ignore_errors=True)
    return Path(shutil.copytree(store, place))


async def checked(root: Path, name: str | None = None) -> Report:
    return await check(await open_indexes(root), root, name)


async def wrong_answers(index: Index, ids: Sequence[str]) -> list[str]:
    """Wrong answers of an index to get, search and explanation."""
    wrong = []
    for name in ids:
        try:
            held = await index.get(name)
        except Exception:  # noqa: BLE001 a refusal is not a wrong answer
            continue
        if held.text != right(name) or held.title != f"Title {name}" or held.links != ["x-1"]:
            wrong.append(f"get {name}")
        if not np.array_equal(held.vector, record(name, held.text).encoding.vector):
            wrong.append(f"vector of {name}")
    query = Query(vector("query"), "document words later")
    for mode in (search.cosine, search.words, search.hybrid):
        try:
            hits = await mode(index, query, 100, None)
        except Exception:  # noqa: BLE001
            continue
        for hit in hits:
            deleted = right(hit.id) is None
            if deleted or not np.array_equal(hit.vector, made_for(hit.id).encoding.vector):
                wrong.append(f"{mode.__name__} {hit.id}")
    try:
        windows = dict([pair async for pair in windows_by_id(index, ids)])
    except Exception:  # noqa: BLE001
        return wrong
    for name, stored in windows.items():
        right_ones = made_for(name).encoding.windows.astype("<f2").astype("f4")
        if not np.array_equal(stored.vectors, right_ones):
            wrong.append(f"windows of {name}")
    return wrong


async def wrong_in_sound(index: Index) -> list[str]:
    """Wrong answers of an index that refuses nothing: what a read raises is raised.

    One read for the rows and one search of each kind answer for all documents.
    """
    held = names(index.table.name.partition(".")[0])
    wrong, found = [], 0
    async for rows in index.contents(held, Part.TEXT, Part.HEAD, Part.LINKS, Part.VECTOR):
        found += rows.num_rows
        documents = rows.select(["id", "text", "title", "links"]).to_pylist()
        for row, its_vector in zip(documents, vector_matrix(rows), strict=True):
            made = made_for(row["id"])
            if [*row.values()] != [made.id, made.text, made.title, made.links]:
                wrong.append(f"row {made.id}")
            if not np.array_equal(its_vector, made.encoding.vector):
                wrong.append(f"vector of {made.id}")
    query = Query(vector("query"), "document words later")
    for mode in (search.cosine, search.words):
        hits = await mode(index, query, 100, None)
        if len(hits) != found:
            wrong.append(f"{mode.__name__} finds {len(hits)} of {found}")
        wrong += [
            f"{mode.__name__} {hit.id}"
            for hit in hits
            if not np.array_equal(hit.vector, made_for(hit.id).encoding.vector)
        ]
    windows = dict([pair async for pair in windows_by_id(index, held)])
    if not len(windows) == found == await index.count():
        wrong.append(f"{found} rows and {len(windows)} windows of {await index.count()}")
    for name, its_windows in windows.items():
        right_ones = made_for(name).encoding.windows.astype("<f2").astype("f4")
        if not np.array_equal(its_windows.vectors, right_ones):
            wrong.append(f"windows of {name}")
    return wrong


def run(coroutine):  # type: ignore[no-untyped-def]
    return asyncio.run(coroutine)
