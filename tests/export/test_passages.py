"""Passages for calibration and parity."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from docsplit.corpora.fields import DataError
from export.errors import ExportError
from export.texts import read_passages


@pytest.fixture(scope="module", autouse=True)
def few_passages() -> None:
    """The number that the commands take."""


def test_the_peps_give_two_disjoint_sets_of_mixed_length() -> None:
    passages = read_passages(None, parity=300)
    assert (len(passages.calibration), len(passages.parity)) == (256, 300)
    assert not set(passages.calibration) & set(passages.parity)
    assert len(set(passages.parity)) == 300
    words = sorted(len(p.split()) for p in passages.parity)
    assert words[0] < 10
    assert words[-1] > 384
    assert read_passages(None, parity=300) == passages


@pytest.mark.parametrize("name", ["lines.txt", "lines.txt.gz", "rows.jsonl", "rows.jsonl.gz"])
def test_files_of_lines_and_of_json(tmp_path: Path, name: str) -> None:
    documents = [f"document number {i} has these words" for i in range(20)]
    lines = documents if name.startswith("lines") else [json.dumps({"text": d}) for d in documents]
    data = ("\n".join(lines) + "\n\n").encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    passages = read_passages(tmp_path / name, parity=12, calibration=8)
    assert sorted(passages.calibration + passages.parity) == sorted(documents)


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("few.txt", b"one line\none line\n", r"1 different passages, but 20 are needed"),
        ("bad.jsonl", b'{"text": "a"}\n{"txt": "b"}\n', "bad.jsonl:2: no column text"),
        ("bad.jsonl", b"plain\n", "bad.jsonl:1: no valid JSON"),
        ("bad.txt", b"fine\n\xff\xfe\n", "not UTF-8"),
        ("bad.txt.gz", b"plain", "not readable"),
        ("empty.txt", b"", "0 different passages"),
    ],
)
def test_unusable_files_are_named(tmp_path: Path, name: str, data: bytes, reason: str) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises((DataError, ExportError), match=reason) as refusal:
        read_passages(path, parity=12, calibration=8)
    assert str(path) in str(refusal.value)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="No such file"):
        read_passages(tmp_path / "absent", parity=12)
