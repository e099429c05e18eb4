"""Makes an archive of a small store in the format of the running version of docsplit.

Run ``PYTHONPATH=. python tests/integrity/stored/make.py tests/integrity/stored/NAME.tar.gz`` in the
working tree of that version. Never make an existing archive again: it shows that later versions
read the data of former ones.
"""

from __future__ import annotations

import asyncio
import hashlib
import sys
import tarfile
import tempfile
from pathlib import Path

import numpy as np

from docsplit.heads.examples import Examples
from docsplit.heads.network import Network
from service.index import commits
from service.index.indexes import Indexes, Model, connect
from service.index.maintenance import optimize
from service.index.rows.records import Encoding, Record
from service.learning.heads import Head, Heads

REVISION = "a" * 64
DIMENSIONS = 8


def vector(text: str) -> np.ndarray:
    digest = hashlib.sha256(text.encode()).digest()
    drawn = np.frombuffer(digest[:DIMENSIONS], np.uint8).astype(np.float32) + 1
    return np.asarray(drawn / np.linalg.norm(drawn), dtype=np.float32)


def record(number: int) -> Record:
    text = f"Stored text {number} speaks of rivers, boats and the number {number}."
    made = vector(text)
    metadata = {"year": 1990 + number, "draft": number % 2 == 0, "note": "é"}
    windows = np.stack([vector(text[:20]), vector(text[20:])])
    encoding = Encoding(made, windows, [20, len(text)])
    return Record(f"d{number}", text, f"Title {number}", metadata, ["d0"], encoding)


async def make(root: Path) -> None:
    databases = [await connect(f"{root}/{part}") for part in ("indexes", "leases")]
    indexes = Indexes(databases[0], databases[1], Model("model", REVISION, DIMENSIONS))
    await indexes.create("papers", {"year": "integer", "draft": "boolean"})
    index = await indexes.open("papers")
    await index.put([record(number) for number in range(6)])
    await optimize(index.table)
    await index.put([record(number) for number in range(6, 8)])
    await commits.delete_everywhere(indexes, "papers", index.identity.uid, ["d7"])
    weight = np.eye(DIMENSIONS, 2, dtype=np.float32)
    network = Network((weight,), (np.zeros(2, np.float32),), 1.0, "softmax")
    examples = Examples(["one", "two"], [["a"], ["b"]])
    report = {"labels": {"a": 1, "b": 1}}
    heads = Heads(await connect(f"{root}/heads"), "classifiers", "classifier")
    await heads.put(Head("kind", "uid", REVISION, ["a", "b"], report, network), examples)


def main(archive: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(make(Path(folder)))
        with tarfile.open(archive, "w:gz") as made:
            made.add(folder, arcname=".")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
