"""Documents from every kind of source, and messages about bad ones."""

from __future__ import annotations

import csv
import gzip
import json
import tracemalloc
from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from training.data.sources import Document, fingerprint, read_documents
from training.errors import DataError
from training.settings import DataSettings

ROWS = [
    {"id": "a", "text": "First, with a comma.\nAnd a line break."},
    {"id": "b", "text": 'Second "quoted" é 字.'},
]


def read(path: Path | str, **settings: object) -> list[Document]:
    return list(read_documents(DataSettings(path=str(path), **settings)))  # type: ignore[arg-type]


def write_jsonl(path: Path) -> None:
    path.write_text("\n\n".join(json.dumps(r) for r in ROWS), encoding="utf-8")


def write_jsonl_gz(path: Path) -> None:
    path.write_bytes(gzip.compress("\n".join(json.dumps(r) for r in ROWS).encode()))


def write_csv(path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, ["id", "text"])
        writer.writeheader()
        writer.writerows(ROWS)


def write_parquet(path: Path) -> None:
    pq.write_table(pa.Table.from_pylist(ROWS), path)


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("d.jsonl", write_jsonl),
        ("d.jsonl.gz", write_jsonl_gz),
        ("d.csv", write_csv),
        ("d.parquet", write_parquet),
    ],
)
@pytest.mark.parametrize("as_folder", [False, True])
def test_every_format_gives_the_same_documents(
    tmp_path: Path, name: str, write: object, as_folder: bool
) -> None:
    write(tmp_path / name)  # type: ignore[operator]
    documents = read(tmp_path if as_folder else tmp_path / name)
    assert [{"id": d.id, "text": d.text} for d in documents] == ROWS


def test_text_folder_names_documents_by_path(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "b.txt").write_text("Bee.", encoding="utf-8")
    (tmp_path / "sub" / "a.txt").write_text("\ufeffAy.", encoding="utf-8")
    (tmp_path / "ignored.md").write_text("Not read.", encoding="utf-8")
    assert read(tmp_path) == [Document("b.txt", "Bee."), Document("sub/a.txt", "Ay.")]


@pytest.mark.parametrize("with_splits", [False, True])
def test_saved_dataset_folder(tmp_path: Path, with_splits: bool) -> None:
    rows = datasets.Dataset.from_list(ROWS)
    saved = datasets.DatasetDict({"train": rows}) if with_splits else rows
    saved.save_to_disk(str(tmp_path / "saved"))
    assert [d.text for d in read(tmp_path / "saved")] == [r["text"] for r in ROWS]
    if with_splits:
        with pytest.raises(DataError, match=r"no split 'test'; it has train"):
            read(tmp_path / "saved", split="test")


def test_hub_name_reaches_the_datasets_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that is no path here is streamed; a local folder stands in for the hub."""
    write_jsonl(tmp_path / "d.jsonl")
    asked: dict[str, object] = {}

    def load(name: str, config: str | None, **options: object) -> list[dict[str, str]]:
        asked.update(options, name=name, config=config)
        return ROWS

    monkeypatch.setattr(datasets, "load_dataset", load)
    documents = read("owner/corpus", revision="abc", hub_config="en")
    assert [d.id for d in documents] == ["a", "b"]
    assert asked == {
        "name": "owner/corpus",
        "config": "en",
        "split": "train",
        "revision": "abc",
        "streaming": True,
    }


def test_id_falls_back_to_the_texts_digest(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    path.write_text('{"text": "x"}\n{"text": "y"}\n{"text": "x"}\n', encoding="utf-8")
    first, second, third = (d.id for d in read(path))
    assert first == third != second


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("d.jsonl", b'{"text": "a"}\n{"text": \n', r"d\.jsonl:2: no valid JSON"),
        ("d.jsonl", b'{"text": "a"}\n\n["a"]\n', r"d\.jsonl:3: expected an object"),
        ("d.jsonl", b'{"body": "a"}\n', r"d\.jsonl:1: no field 'text'; the record has body"),
        ("d.jsonl", b'{"text": 3}\n', r"d\.jsonl:1: field 'text' must be text, found int"),
        ("d.jsonl", b'{"text": "a"}\n{"text": "\xff"}\n', r"d\.jsonl:2: not UTF-8"),
        ("d.txt", b"a\nb\n\xff\n", r"d\.txt:3: not UTF-8"),
        ("d.csv", b"id,text\n1,a\n2,b,c\n", r"d\.csv:3: 2 columns in the header"),
        ("d.csv", b"id,text\n1,a\n2\n", r"d\.csv:3: field 'text' must be text"),
        ("d.csv", b"id,body\n1,a\n", r"d\.csv:2: no field 'text'; the record has id, body"),
        ("d.csv", b'id,text\n1,a\n2,"b\n', r"d\.csv:3: no valid CSV"),
        ("d.parquet", b"PAR1 is what this is not", r"d\.parquet: no readable Parquet"),
        ("d.jsonl.gz", b"not gzip", r"d\.jsonl\.gz:1: damaged gzip"),
        ("d.docx", b"", r"d\.docx: unknown file type; known are \.jsonl"),
    ],
)
def test_bad_file_is_named_with_its_line(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        read(tmp_path / name)


def test_cut_gzip_names_its_line(tmp_path: Path) -> None:
    whole = gzip.compress(b'{"text": "a"}\n' + json.dumps({"text": "b" * 99}).encode())
    (tmp_path / "d.jsonl.gz").write_bytes(whole[:-12])
    with pytest.raises(DataError, match=r"d\.jsonl\.gz:\d: damaged gzip"):
        read(tmp_path / "d.jsonl.gz")


def test_parquet_names_column_and_row(tmp_path: Path) -> None:
    path = tmp_path / "d.parquet"
    pq.write_table(pa.table({"body": ["a"]}), path)
    with pytest.raises(DataError, match=r"d\.parquet: no column 'text'; the file has body"):
        read(path)
    pq.write_table(pa.table({"text": ["a", None]}), path)
    with pytest.raises(DataError, match=r"d\.parquet: row 2: field 'text' must be text"):
        read(path)


def test_missing_path_is_said_so_without_asking_the_hub(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file or folder"):
        read(tmp_path / "absent")
    with pytest.raises(DataError, match="no such file or folder"):
        read("absent.jsonl")
    with pytest.raises(DataError, match=r"no \.jsonl"):
        read(tmp_path)


def test_fingerprint_follows_content_and_fields(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    write_jsonl(path)
    settings = DataSettings(path=str(path))
    before = fingerprint(settings)
    assert fingerprint(settings) == before
    assert fingerprint(settings.model_copy(update={"text_field": "id"})) != before
    path.write_text(path.read_text(encoding="utf-8").replace("First", "Third"), encoding="utf-8")
    assert fingerprint(settings) != before


def test_memory_does_not_grow_with_the_number_of_documents(tmp_path: Path) -> None:
    def peak(documents: int) -> int:
        path = tmp_path / f"{documents}.jsonl"
        with path.open("w", encoding="utf-8") as stream:
            for number in range(documents):
                stream.write(json.dumps({"id": str(number), "text": "word " * 200}) + "\n")
        tracemalloc.start()
        for _ in read_documents(DataSettings(path=str(path))):
            pass
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    peak(10)
    assert peak(5_000) < 2 * peak(500)
