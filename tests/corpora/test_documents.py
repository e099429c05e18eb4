"""Documents from every format and compression, and the messages about unreadable ones."""

from __future__ import annotations

import argparse
import bz2
import csv
import gzip
import io
import json
import math
import os
import sys
import tarfile
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.files.making import made, packed
from benchmarks.files.source import AUTHOR, sources
from docsplit.corpora import files
from docsplit.corpora.documents import (
    Document,
    Refused,
    check_source,
    read_documents,
    read_links,
    read_texts,
    titled,
)
from docsplit.corpora.fields import DataError, Fields, add_field_flags
from docsplit.extraction.content import Heading

DOCUMENTS = [
    Document("a", 'First, with a comma,\n"quotes"\tand é 字.', "One", {"year": 2001}, ["b", "c"]),
    Document("b", "Second.", None, {"year": 2002, "open": True}, ["z"]),
]
ROWS = [
    {"id": d.id, "text": d.text, "title": d.title, "links": d.links, **d.metadata}
    for d in DOCUMENTS
]


def json_lines() -> bytes:
    return b"\xef\xbb\xbf" + "\n\n".join(json.dumps(row) for row in ROWS).encode()


def separated(delimiter: str) -> bytes:
    made = io.StringIO(newline="")
    writer = csv.DictWriter(made, [*ROWS[0], "open"], delimiter=delimiter)
    writer.writeheader()
    writer.writerows([row | {"links": json.dumps(row["links"])} for row in ROWS])
    return made.getvalue().encode()


def parquet() -> bytes:
    made = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([ROWS[0] | {"open": None}, ROWS[1]]), made)
    return made.getvalue()


FORMATS: dict[str, Callable[[], bytes]] = {
    ".jsonl": json_lines,
    ".csv": lambda: separated(","),
    ".tsv": lambda: separated("\t"),
    ".parquet": parquet,
    ".txt": lambda: "\ufeffA text\nof two lines, é.".encode(),
}
# damages the second document of a file of each kind
DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    ".jsonl": lambda content: content[:-5],
    ".csv": lambda content: content + b'c,"open',
    ".tsv": lambda content: content + b"c\td\n",
    ".parquet": lambda content: content[:-5],
    ".txt": lambda content: content + bytes(range(256)),
}
PACKED: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".zst": lambda content: pa.Codec("zstd").compress(content, asbytes=True),
}


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "d.csv"
    path.write_text("id,text,note,note\na,A text.,first,second\n")
    with pytest.raises(DataError, match=r"d\.csv: two columns have the name 'note'; rename"):
        list(read_documents(path))
    columns = [pa.array([value]) for value in ("a", "A text.", "first", "second")]
    both = pa.Table.from_arrays(columns, names=["id", "text", "note", "note"])
    pq.write_table(both, tmp_path / "d.parquet")
    with pytest.raises(DataError, match=r"d\.parquet: two columns have the name 'note'"):
        list(read_documents(tmp_path / "d.parquet"))
    # who does not read the column is not disturbed
    assert list(read_texts(path)) == [Document("a", "A text.")]
    path.write_text("id,text,text\na,A text.,Another.\n")
    with pytest.raises(DataError, match="two columns have the name 'text'"):
        list(read_texts(path))


def test_a_list_is_metadata_if_its_column_is_declared(tmp_path: Path) -> None:
    row = {"id": "a", "text": "A text.", "tags": ["x", "y"], "other": ["z"]}
    lines, table = tmp_path / "d.jsonl", tmp_path / "d.csv"
    lines.write_text(json.dumps(row))
    table.write_text('id,text,tags\na,A text.,"[""x"", ""y""]"\n')
    expected = [Document("a", "A text.", None, {"tags": ["x", "y"]}, [])]
    packed = tmp_path / "d.parquet"
    pq.write_table(pa.Table.from_pylist([row]), packed)
    for path in (lines, table, packed):
        assert list(read_documents(path, declared={"tags": "strings"})) == expected
    # the index refuses it and names the field
    [other] = read_documents(packed, declared={"tags": "string"})
    assert other.metadata == {"tags": ["x", "y"]}
    assert list(read_documents(lines)) == [Document("a", "A text.", None, {}, [])]


@pytest.mark.parametrize("packed", PACKED)
@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_packed_or_not_gives_the_same_documents(
    tmp_path: Path, kind: str, packed: str
) -> None:
    path = tmp_path / f"d{kind}{packed}"
    path.write_bytes(PACKED[packed](FORMATS[kind]()))
    expected = DOCUMENTS
    if kind == ".txt":
        expected = [Document(path.name, "A text\nof two lines, é.")]
    assert list(read_documents(path, declared={"year": "integer", "open": "boolean"})) == expected
    assert (
        list(read_documents(tmp_path, declared={"year": "integer", "open": "boolean"})) == expected
    )
    assert [(d.id, d.text) for d in read_texts(path)] == [(d.id, d.text) for d in expected]


@pytest.mark.parametrize("packed", PACKED)
@pytest.mark.parametrize("kind", FORMATS)
def test_a_damaged_file_is_named(tmp_path: Path, kind: str, packed: str) -> None:
    path = tmp_path / f"d{kind}{packed}"
    path.write_bytes(PACKED[packed](DAMAGE[kind](FORMATS[kind]())))
    whole = kind in (".parquet", ".txt")
    place = rf"d{kind}{packed}: " if whole else rf"d{kind}{packed}:[2-5]: "
    with pytest.raises(DataError, match=place):
        list(read_documents(path))
    if packed:
        sound = PACKED[packed](FORMATS[kind]())
        for content in (sound[:-6], b"not packed"):
            path.write_bytes(content)
            with pytest.raises(DataError, match=rf"d{kind}{packed}.*: not readable"):
                list(read_documents(path))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("d.jsonl", b'{"text": "a"}\n\n["a"]\n', r"d\.jsonl:3: expected an object"),
        ("d.jsonl", b"[" * 100_000, r"d\.jsonl:1: no valid JSON"),
        ("d.jsonl", b'{"body": "a"}\n', r"d\.jsonl:1: no column text; there are body\. .*--text-f"),
        ("d.jsonl", b'{"text": 3}\n', r"d\.jsonl:1: field 'text' must be text, found int"),
        ("d.jsonl", b'{"text": "a"}\n{"text": "\xff"}\n', r"d\.jsonl:2: not UTF-8"),
        ("d.csv", b"id,text\n1,a\n2,b,c\n", r"d\.csv:3: the number of values differs"),
        ("d.csv", b"id,text\n1,a\n2\n", r"d\.csv:3: the number of values differs"),
        ("d.csv", b"id,body\n1,a\n", r"d\.csv:1: no column text; there are id, body"),
        ("d.csv", b"id;body\n1;a\n", r"d\.csv:1: no column text; there are id, body"),
        ("d.csv", b"id,text\n1,\0\xff\n", r"d\.csv:2: binary content"),
        ("d.tsv", b"id,text\n1,a\n", r"d\.tsv:1: no column text; there are id,text\. Rename"),
        ("d.json", b'[{"text": "a"},\n{"text": 3}]', r"d\.json: item 2: field 'text' must be text"),
        ("d.json", b'[{"text": "a"},\n{"text": ]', r"d\.json:2: no valid JSON"),
        # the first row has several lines
        ("d.csv", b'id,body\n1,"a\nb"\n', r"d\.csv:1: no column text; there are id, body"),
        ("d.csv", b'id,text\n1,"a\nb"\n\n2\n', r"d\.csv:5: the number of values differs"),
        ("d.csv", b'id,text\n1,"a\nb"\n2,"b\nc",d\n', r"d\.csv:4: the number of values differs"),
        ("d.docx", b"", r"d\.docx: no DOCX file, or a damaged one"),
        ("d.png", b"", r"d\.png: no file of a known type; known are \.parquet"),
    ],
)
def test_a_bad_row_is_named_with_its_line(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        list(read_texts(tmp_path / name))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"text": "a"}, "no column id"),
        ({"id": "", "text": "a"}, "'id' must be text or a whole number, not empty"),
        ({"id": "a", "text": "a", "title": 1}, "'title' must be text"),
        ({"id": "a", "text": "a", "links": "b"}, "links a list of ids"),
        ({"id": "a", "text": "a", "links": ["b", None]}, "links a list of ids"),
        ({"id": "a", "text": "a", "links": [{"id": "b"}]}, "links a list of ids"),
        ({"id": "a", "text": "a", "metadata": 1}, "metadata must be an object"),
        ({"id": "a", "text": "a", "outline": {"pages": [], "headings": [1]}}, "outline must have"),
        ({"id": "a", "text": "a", "outline": {"pages": [9], "headings": []}}, "outside the text"),
    ],
)
def test_invalid_rows_are_refused(tmp_path: Path, row: object, message: str) -> None:
    (tmp_path / "d.jsonl").write_text(json.dumps(row))
    with pytest.raises(DataError, match=rf"d\.jsonl:1: .*{message}"):
        list(read_documents(tmp_path / "d.jsonl"))


def test_a_row_with_a_wrong_value_is_named_and_the_others_follow(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    given: list[dict[str, object]] = [
        {"id": "a", "text": None},
        {"id": None, "text": "One."},
        {"id": "b", "text": "Two.", "raw": {"x": 1}},
        {"id": "c", "text": "Three.", "title": 3},
        {"id": "d", "text": "Four."},
    ]
    path.write_text("\n".join(map(json.dumps, given)))
    refused: list[Refused] = []
    found = read_documents(path, declared={"raw": "string"}, refuse=refused.append)
    assert [one.id for one in found] == ["d"]
    assert [one.id for one in refused] == ["a", "None", "b", "c"]
    for line, (one, column) in enumerate(zip(refused, ("text", "id", "raw", "title"), strict=True)):
        assert f"d.jsonl:{line + 1}: field {column!r}" in one.reason


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("d.csv", "id;text\n1;Größe, zweitens\n2;Fluß\n".encode("cp1252")),
        ("d.csv", "id\ttext\n1\tGröße, zweitens\n2\tFluß\n".encode("utf-16")),
        ("d.csv", 'id,"text"\n1,"Größe, zweitens"\n2,Fluß\n'.encode()),
        ("d.ndjson", '{"id": 1, "text": "Größe, zweitens"}\n{"id": 2, "text": "Fluß"}'.encode()),
        ("d.json", '\n[{"id": 1, "text": "Größe, zweitens"}, {"id": 2, "text": "Fluß"}]'.encode()),
        ("d.jsonl", '[{"id": 1, "text": "Größe, zweitens"}, {"id": 2, "text": "Fluß"}]'.encode()),
    ],
)
def test_other_forms_of_tables_are_read(tmp_path: Path, name: str, content: bytes) -> None:
    """A folder may hold JSON of any other kind: only one that is named is a table."""
    path = tmp_path / name
    path.write_bytes(content)
    (tmp_path / "package.json").write_text('{"name": "x"}')
    expected = [Document("1", "Größe, zweitens"), Document("2", "Fluß")]
    assert list(read_documents(path)) == expected
    if name != "d.json":
        assert list(read_documents(tmp_path)) == expected


def test_parquet_names_column_and_row(tmp_path: Path) -> None:
    path = tmp_path / "d.parquet"
    pq.write_table(pa.table({"body": ["a"]}), path)
    with pytest.raises(DataError, match=r"d\.parquet: no column text; there are body"):
        list(read_texts(path))
    pq.write_table(pa.table({"text": ["a", None]}), path)
    with pytest.raises(DataError, match=r"d\.parquet: row 2: field 'text' must be text"):
        list(read_texts(path))


@pytest.mark.parametrize("name", ["d.jsonl.gz", "d.csv.gz", "d.txt.gz", "d.parquet.gz"])
def test_a_file_that_unpacks_to_too_much_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    path = tmp_path / name
    path.write_bytes(gzip.compress(FORMATS[files.suffix(path)]()))
    assert list(read_texts(path))
    monkeypatch.setattr(files, "MOST_BYTES", 12)
    with pytest.raises(DataError, match=rf"{name}.*: more than 12 bytes"):
        list(read_texts(path))


def test_a_folder_is_read_by_path_without_its_links(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "b.txt").write_text("Bee.")
    (tmp_path / "sub" / "a.md").write_text("Ay.")
    (tmp_path / "c.png").write_bytes(b"\xff")
    links = tmp_path / "links.tsv"
    links.write_text("citing\tcited\nb.txt\tsub/a.md\n")
    found = list(read_documents(tmp_path, links=links))
    assert [(d.id, d.links) for d in found] == [("b.txt", ["sub/a.md"]), ("sub/a.md", [])]
    with pytest.raises(DataError, match=r"links\.tsv:1: no column id and text"):
        list(read_documents(tmp_path))


def test_a_folder_of_files_goes_on_after_those_that_cannot_be_read(tmp_path: Path) -> None:
    [source] = sources(1)
    for kind in (".pdf", ".docx", ".eml"):
        (tmp_path / f"a{kind}").write_bytes(made(kind, source).content)
    (tmp_path / "b.html.gz").write_bytes(gzip.compress(made(".html", source).content))
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        tar.add(tmp_path / "a.docx", "deep/a.docx")
    (tmp_path / "c.tgz").write_bytes(archive.getvalue())
    (tmp_path / "d.zip").write_bytes(packed({"a.txt": "A text.", "b.pdf": b"%PDF-1.7"}))
    (tmp_path / "e.pdf").write_bytes(made(".pdf", source).content[:500])
    (tmp_path / "f.txt.gz").write_bytes(b"not packed")
    refused: list[Refused] = []
    found = {one.id: one for one in read_documents(tmp_path, refuse=refused.append)}
    assert list(found) == [
        "a.docx",
        "a.eml",
        "a.pdf",
        "b.html.gz",
        "c.tgz/deep/a.docx",
        "d.zip/a.txt",
    ]
    assert [one.id for one in refused] == ["d.zip/b.pdf", "e.pdf", "f.txt.gz"]
    assert refused[1].reason == "a damaged PDF file"
    assert refused[2].reason.startswith("not readable")
    word, page = found["a.docx"], found["a.pdf"]
    assert (word.title, word.metadata) == (
        source.title,
        {"author": AUTHOR, "date": f"{source.date}T00:00:00+00:00"},
    )
    assert word.headings
    assert page.pages == [0]
    with pytest.raises(DataError, match=r"d\.zip: b\.pdf: a damaged PDF file"):
        list(read_documents(tmp_path))


def test_a_folder_that_cannot_be_listed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "a.txt").write_text("Ay.")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b.txt").write_text("Bee.")
    # another user cannot reach the folder by its whole path
    monkeypatch.chdir(tmp_path)
    assert files.files(Path()) == [Path("a.txt"), Path("sub/b.txt")]
    for mode in (0o000, 0o744):
        (tmp_path / "sub").chmod(mode)
        user = os.geteuid()
        try:
            if user == 0:
                os.seteuid(65534)
            with pytest.raises(DataError, match=r"sub\S*: not readable \(Permission denied\)"):
                files.files(Path())
        finally:
            os.seteuid(user)
            (tmp_path / "sub").chmod(0o755)


def test_links_need_their_columns(tmp_path: Path) -> None:
    path = tmp_path / "links.csv"
    path.write_text("from,to\na,b\n")
    with pytest.raises(DataError, match=r"links\.csv:1: no column citing and cited"):
        list(read_links(path))
    path = tmp_path / "links.jsonl"
    for cited in (None, "", 1.0):
        row = json.dumps({"citing": "a", "cited": cited})
        path.write_text(f'{{"citing": 1, "cited": "b"}}\n{row}\n')
        with pytest.raises(DataError, match=r"links\.jsonl:2: citing and cited must be"):
            list(read_links(path))


def test_the_digest_of_the_text_replaces_a_missing_id(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    path.write_text('{"text": "x"}\n{"text": "y"}\n{"text": "x"}\n')
    first, second, third = (d.id for d in read_texts(path))
    assert first == third != second


def test_flags_name_columns(tmp_path: Path) -> None:
    parser = argparse.ArgumentParser()
    add_field_flags(parser, "text", "id", "title")
    given = parser.parse_args(["--text-field", "body", "--id-field", "key"])
    path = tmp_path / "d.csv"
    path.write_text("key,body,title\n7,Words.,Name\n")
    assert Fields.given(given, 5) == Fields("body", "key", limit=5)
    assert list(read_documents(path, Fields.given(given))) == [Document("7", "Words.", "Name")]


def test_memory_does_not_grow_with_the_number_of_documents(tmp_path: Path) -> None:
    def peak(documents: int) -> int:
        path = tmp_path / f"{documents}.jsonl"
        with path.open("w") as stream:
            for number in range(documents):
                stream.write(json.dumps({"id": str(number), "text": "word " * 200}) + "\n")
        tracemalloc.start()
        for _ in read_texts(path):
            pass
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    peak(10)
    assert peak(5_000) < 2 * peak(500)


def test_dates_and_decimal_numbers_of_parquet_become_metadata(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    columns: dict[str, list[object]] = {
        "id": ["a"],
        "text": ["One."],
        "day": [date(2024, 5, 1)],
        "at": [datetime(2024, 5, 1, 12, 30, tzinfo=UTC)],
        "price": [Decimal("9.50")],
        "number": [Decimal(7)],
        "raw": [b"1"],
    }
    pq.write_table(pa.table(columns), path)
    [found] = read_documents(path)
    assert found.metadata == {
        "day": "2024-05-01",
        "at": "2024-05-01T12:30:00+00:00",
        "price": 9.5,
        "number": 7,
    }
    pq.write_table(
        pa.table({**columns, "day": pa.array([2**40], pa.timestamp("s")), "at": [None]}), path
    )
    [found] = read_documents(path)
    assert found.metadata == {
        "day": "<value out of range: 1099511627776000>",
        "price": 9.5,
        "number": 7,
    }
    with pytest.raises(DataError, match="row 1: field 'raw' holds bytes"):
        list(read_documents(path, declared={"raw": "string"}))


def test_tables_of_pandas_lose_their_index_and_missing_numbers(tmp_path: Path) -> None:
    table = {
        "__index_level_0__": [7],
        "id": ["a"],
        "text": ["one"],
        "at": pa.array([time(9, 30)], pa.time32("s")),
        "score": [math.nan],
        "year": [2020.0],
    }
    pq.write_table(pa.table(table), tmp_path / "a.parquet")
    [document] = read_documents(tmp_path / "a.parquet", declared={"year": "integer"})
    assert document.metadata == {"at": "09:30:00", "year": 2020}
    (tmp_path / "a.csv").write_text(",id,text,colour\n0,a,one,red\n")
    [document] = read_documents(tmp_path / "a.csv")
    assert document.metadata == {"colour": "red"}
    (tmp_path / "a.jsonl").write_text('{"id": "a", "text": "one", "score": NaN, "rank": 2}')
    [document] = read_documents(tmp_path / "a.jsonl")
    assert document.metadata == {"rank": 2}


def test_whole_numbers_of_a_declared_column_are_integers(tmp_path: Path) -> None:
    """As in a column of integers that pandas wrote with a missing value."""
    path = tmp_path / "documents.parquet"
    rows = [
        {"id": "a", "text": "one", "year": 2011.0, "share": 1.0},
        {"id": "b", "text": "two", "year": None, "share": 0.5},
        {"id": "c", "text": "three", "year": 2011.5, "share": 0.0},
    ]
    pq.write_table(pa.Table.from_pylist(rows), path)
    found = [one.metadata for one in read_documents(path, declared={"year": "integer"})]
    assert [one.get("year") for one in found] == [2011, None, 2011.5]
    assert isinstance(found[0]["year"], int)
    assert isinstance(found[0]["share"], float)


def test_a_title_is_put_before_its_text() -> None:
    """The places of pages and headings move with the text."""
    text = "First words.\n\nMethods\n\nMore words."
    heading = Heading(text.index("Methods"), 1, "Methods")
    given = Document("a", text, " A title ", pages=[0, 14], headings=[heading])
    found = titled(given)
    assert found.text == f"A title\n\n{text}"
    assert found.text[found.headings[0].start :].startswith("Methods")
    assert found.pages[0] == 0
    assert found.text[found.pages[1] :] == text[14:]
    assert titled(found) == found
    for title in (None, "", " ", "First words."):
        assert titled(replace(given, title=title)) == replace(given, title=title)


def test_a_folder_says_which_files_it_leaves_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("a.txt", "b.png", "c.PNG", "Makefile", ".hidden"):
        (tmp_path / name).write_text("a text")
    check_source(tmp_path)
    assert sorted(caplog.messages) == [
        "left out: 1 of no ending, no known type",
        "left out: 2 of .png, no known type",
    ]


def test_without_the_readers_tables_are_read_and_files_name_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pypdfium2", None)
    (tmp_path / "a.jsonl").write_text('{"id": "a", "text": "b"}\n')
    assert [one.text for one in read_documents(tmp_path)] == ["b"]
    (tmp_path / "b.txt").write_text("c")
    with pytest.raises(DataError, match=r"b\.txt: reading it needs .*docsplit\[files\]"):
        list(read_documents(tmp_path))
