"""Indexes of documents that cite each other, in this process."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from service.index import found_links
from service.index.documents import Index
from service.index.found_links import Link, Report
from service.index.indexes import Indexes, Model, connect
from service.index.rows import checksums
from service.index.rows.records import Encoding, Record

Links = Mapping[str, set[str]]
REPORT = Report(0, 0, 0, 0, 0, 0, 0, 0.0)


async def filled(path: Path, links: Links, held: Links) -> tuple[Indexes, Index]:
    """An index with given links, and found ones."""
    databases = [await connect(f"{path}/{part}") for part in ("indexes", "leases")]
    indexes = Indexes(databases[0], databases[1], Model("model", "a" * 64, 2))
    await indexes.create("x", {"even": "boolean"})
    index = await indexes.open("x")
    vector = np.array([1, 0], np.float32)
    await index.put(
        [
            Record(
                name,
                "Text.",
                None,
                {"even": place % 2 == 0},
                sorted(cited),
                Encoding(vector, vector[None], [5]),
            )
            for place, (name, cited) in enumerate(links.items())
        ]
    )
    rows = await index.table.query().select(["id", "digest"]).to_arrow()
    digests = {row["id"]: checksums.content(row["digest"]) for row in rows.to_pylist()}
    pairs = [Link(one, other, digests[one], 1) for one in held for other in sorted(held[one])]
    await indexes.found_links.replace(index.identity.uid, found_links.rows(pairs), REPORT)
    return indexes, index


def drawn(seed: int, chance: float) -> dict[str, set[str]]:
    """Random links between 40 documents, to themselves and to five missing ones."""
    draw = np.random.default_rng(seed)
    names = [f"d{i}" for i in range(40)]
    cited = [*names, *(f"gone{i}" for i in range(5))]
    return {name: {one for one in cited if draw.random() < chance} for name in names}
