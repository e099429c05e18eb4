"""``docsplit-train citation`` learns from the features that the service serves."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from docsplit.corpora.documents import Document
from docsplit.heads.citation import Candidates
from docsplit.heads.pairs import FEATURES
from docsplit.windowing.pooling import Vectors
from service.index.documents import Index
from service.index.indexes import Indexes, Model, connect
from service.index.rows.records import Encoding, Record
from service.learning.citations import search_of
from training.heads import searches

DIMENSIONS = 16
DOCUMENTS = 110
CITING = 12


def written(peps: dict[str, str]) -> list[Document]:
    """Parts of PEPs, most with titles; the first ones cite three of the others."""
    parts = [text[2000:5000] for text in peps.values() if len(text) > 5000][:DOCUMENTS]
    return [
        Document(
            f"d{i:03}",
            part,
            " ".join(part.split()[:4]) if i % 3 else None,
            links=[f"d{20 + i * step:03}" for step in (1, 3, 7)] if i < CITING else [],
        )
        for i, part in enumerate(parts)
    ]


async def indexed(path: Path, documents: list[Document], vectors: Vectors) -> Index:
    databases = [await connect(f"{path}/{part}") for part in ("indexes", "leases")]
    indexes = Indexes(databases[0], databases[1], Model("model", "a" * 64, DIMENSIONS))
    await indexes.create("x", {"year": "integer"})
    index = await indexes.open("x")
    await index.put(
        [
            Record(
                one.id,
                one.text,
                one.title,
                {"year": 2000 + place},
                one.links,
                Encoding(own, own[None], [len(one.text)]),
            )
            for place, (one, own) in enumerate(zip(documents, vectors, strict=True))
        ]
    )
    return index


def served(path: Path, documents: list[Document], vectors: Vectors) -> list[Candidates]:
    async def read() -> list[Candidates]:
        index = await indexed(path, documents, vectors)
        popularity = Counter(cited for one in documents for cited in set(one.links))
        citing = [one for one in documents if one.links]
        found = [await search_of(index, one.id, set(one.links), popularity) for one in citing]
        return [one for one in found if one is not None and one.linked.any()]

    return asyncio.run(read())


def test_the_command_learns_from_the_features_that_the_service_serves(
    tmp_path: Path, peps: dict[str, str]
) -> None:
    documents = written(peps)
    draw = np.random.default_rng(0)
    vectors = draw.standard_normal((DOCUMENTS, DIMENSIONS)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    links = {
        place: {int(cited[1:]) for cited in one.links}
        for place, one in enumerate(documents)
        if one.links
    }
    wanted = served(tmp_path, documents, vectors)
    # the command draws the citing documents in an order of its own
    place = {one.query.tobytes(): number for number, one in enumerate(wanted)}
    ours = sorted(searches(documents, vectors, links), key=lambda one: place[one.query.tobytes()])
    assert len(ours) == len(wanted) == CITING
    for one, other in zip(ours, wanted, strict=True):
        assert one.features.shape == (100, FEATURES)
        assert other.features.shape == (100, FEATURES + 2)
        np.testing.assert_array_equal(one.found, other.found)
        np.testing.assert_array_equal(one.linked, other.linked)
        np.testing.assert_allclose(one.features, other.features[:, :FEATURES], atol=1e-4)
        np.testing.assert_allclose(one.signals, other.signals, atol=1e-5)
    untitled = [replace(one, title=None) for one in documents]
    control = searches(untitled, vectors, links)
    control.sort(key=lambda one: place[one.query.tobytes()])
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(control[0].features, wanted[0].features[:, :FEATURES], atol=1e-4)
