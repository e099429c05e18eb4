"""Documents from folders and Hugging Face datasets."""

from __future__ import annotations

import json
from pathlib import Path

import datasets
import pytest

from docsplit.corpora.documents import Document
from docsplit.corpora.fields import DataError
from training.documents import fingerprint, read_documents
from training.settings import DataSettings

ROWS = [
    {"id": "a", "text": "First, with a comma.\nAnd a line break."},
    {"id": "b", "text": 'Second "quoted" é 字.'},
]


def read(path: Path | str, **settings: object) -> list[Document]:
    return list(read_documents(DataSettings(path=str(path), **settings)))  # type: ignore[arg-type]


def write_jsonl(path: Path) -> None:
    path.write_text("\n\n".join(json.dumps(r) for r in ROWS), encoding="utf-8")


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
    """A name that is not a path is streamed. A local folder replaces the hub."""
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


def test_missing_path_is_reported_without_asking_the_hub(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file or folder"):
        read(tmp_path / "absent")
    with pytest.raises(DataError, match="no such file or folder"):
        read("absent.jsonl")
    with pytest.raises(DataError, match="no file of a known type"):
        read(tmp_path)


def test_fingerprint_depends_on_content_and_fields(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    write_jsonl(path)
    settings = DataSettings(path=str(path))
    before = fingerprint(settings)
    assert fingerprint(settings) == before
    assert fingerprint(settings.model_copy(update={"text_field": "id"})) != before
    path.write_text(path.read_text(encoding="utf-8").replace("First", "Third"), encoding="utf-8")
    assert fingerprint(settings) != before
