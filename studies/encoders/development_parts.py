"""Cut development parts from the training parts of the sets, by digests of ids.

Every choice about the default encoder is made on the development parts. Its training reads the
rest, and the test parts are read once, at the end:

    python -m studies.encoders.development_parts data runs/parts

writes ``runs/parts/training``, a file of unlabelled documents for each corpus, and
``runs/parts/development``, sets for ``docsplit-evaluate``.
"""

import argparse
import hashlib
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

# share of the training part, and the column that keeps near-duplicates together
_LABELLED = {"arxiv": (0.10, "id"), "news20": (0.25, "id"), "bbc": (0.40, "group")}
_UNLABELLED = ("wiki/enwiki2015", "wiki/enwiki2018")


def chosen(value: object, share: float) -> bool:
    """Whether the documents of an id or a group belong to the development part."""
    digest = hashlib.sha256(f"dev{value}".encode()).hexdigest()
    return int(digest[:8], 16) / 2**32 < share


def main() -> None:
    """Write both folders."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, help="folder with the sets")
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    training, development = given.out / "training", given.out / "development"
    training.mkdir(parents=True, exist_ok=True)
    (development / "eips").mkdir(parents=True, exist_ok=True)
    for name, (share, column) in _LABELLED.items():
        table = _training_part(given.data / f"{name}.parquet")
        held = pa.array([chosen(value, share) for value in table[column].to_pylist()])
        _write(table.filter(pc.invert(held)), training / f"{name}.parquet")
        labelled = table.filter(held).drop_columns(["split"])
        pq.write_table(labelled, development / f"{name}.parquet")
    _write(_training_part(given.data / "fakenews.parquet"), training / "fakenews.parquet")
    for name in _UNLABELLED:
        _write(
            pq.read_table(given.data / f"{name}.parquet"), training / f"{Path(name).name}.parquet"
        )
    _write_linked(given.data / "specs_cite", development / "eips")


def _training_part(path: Path) -> pa.Table:
    table = pq.read_table(path)
    return table.filter(pc.equal(table["split"], "train"))


def _write(table: pa.Table, path: Path) -> None:
    ids = pc.cast(table["id"], pa.string())
    pq.write_table(pa.table({"id": ids, "text": table["text"]}), path)


def _write_linked(source: Path, folder: Path) -> None:
    documents = pq.read_table(source / "documents.parquet")
    documents = documents.filter(pc.equal(documents["collection"], "eip"))
    links = pq.read_table(source / "citations.parquet")
    for column in ("citing", "cited"):
        links = links.filter(pc.is_in(links[column], documents["id"].combine_chunks()))
    pq.write_table(documents, folder / "documents.parquet")
    pq.write_table(links, folder / "citations.parquet")


if __name__ == "__main__":
    main()
