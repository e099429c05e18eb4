"""Stream training documents from files, folders and Hugging Face datasets."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docsplit.corpora.documents
from docsplit.corpora.documents import Document, read_texts, text_of
from docsplit.corpora.fields import DataError, Fields
from docsplit.corpora.files import TYPES, same, suffix
from docsplit.corpora.tables import check
from training.settings import DataSettings


def read_documents(settings: DataSettings) -> Iterator[Document]:
    """Stream the documents of ``settings.path`` in a fixed order.

    A path on disk is a file, a folder of files (read in the order of their names) or a dataset
    written by ``Dataset.save_to_disk``. Anything else is the name of a dataset on the Hugging Face
    hub, which is streamed.

    Raises:
        DataError: a file or a field is missing, or a record is malformed. The message names file
            and line.
    """
    path = Path(settings.path)
    if path.exists() and not _is_saved_dataset(path):
        yield from read_texts(path, _fields(settings), links=_links(settings))
    elif path.exists():
        yield from _records(_saved_dataset(path, settings), settings)
    elif path.is_absolute() or settings.path[0] == "." or suffix(path) in TYPES:
        raise DataError(f"{path}: no such file or folder (data.path)")
    else:
        yield from _records(_hub_dataset(settings), settings)


def read_authors(settings: DataSettings, field: str) -> Iterator[tuple[str, frozenset[str]]]:
    """Stream the id of each document and its authors.

    The field ``field`` holds a list of names, or a text with semicolons between them. A document
    may lack it.

    Raises:
        DataError: as ``read_documents``; or a document has no id, or other values as authors.
    """
    path = Path(settings.path)
    if path.exists() and not _is_saved_dataset(path):
        links = _links(settings) if path.is_dir() else None
        for document in docsplit.corpora.documents.read_documents(
            path, _fields(settings), typed=[field], links=links
        ):
            yield document.id, _authors(document.metadata.get(field), f"{path}: {document.id}")
        return
    dataset = _saved_dataset(path, settings) if path.exists() else _hub_dataset(settings)
    for number, record in enumerate(dataset, start=1):
        where = f"{settings.path}: row {number}"
        yield text_of(record, where, _fields(settings)).id, _authors(record.get(field), where)


def _authors(given: object, where: str) -> frozenset[str]:
    names = given.split(";") if isinstance(given, str) else given
    if names is None:
        return frozenset()
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise DataError(f"{where}: authors must be a text or a list of texts (data.author_field)")
    return frozenset(name.strip().casefold() for name in names) - {""}


def fingerprint(settings: DataSettings) -> str:
    """SHA-256 that changes when the documents change.

    The digest of local files covers names and contents. The digest of a hub dataset covers only
    its name, configuration, split and revision: set a revision to fix the contents.
    """
    path = Path(settings.path)
    digest = hashlib.sha256()
    digest.update(json.dumps([settings.text_field, settings.id_field, settings.split]).encode())
    if not path.exists():
        digest.update(json.dumps([settings.path, settings.hub_config, settings.revision]).encode())
        return digest.hexdigest()
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    links = _links(settings)
    for file in files:
        if same(file, links):
            continue
        with file.open("rb") as stream:
            content = hashlib.file_digest(stream, "sha256").hexdigest()
        name = file.name if file == path else file.relative_to(path).as_posix()
        digest.update(f"{name}\0{content}\n".encode())
    return digest.hexdigest()


def _is_saved_dataset(path: Path) -> bool:
    return (path / "dataset_info.json").is_file() or (path / "dataset_dict.json").is_file()


def _saved_dataset(path: Path, settings: DataSettings) -> Any:
    import datasets

    try:
        loaded = datasets.load_from_disk(str(path))
    except (FileNotFoundError, ValueError) as error:
        raise DataError(f"{path}: not a readable dataset folder ({error})") from None
    if isinstance(loaded, datasets.DatasetDict):
        if settings.split not in loaded:
            raise DataError(
                f"{path}: no split {settings.split!r}; it has {', '.join(loaded)} (set data.split)"
            )
        return loaded[settings.split]
    return loaded


def _hub_dataset(settings: DataSettings) -> Any:
    import datasets

    try:
        return datasets.load_dataset(
            settings.path,
            settings.hub_config,
            split=settings.split,
            revision=settings.revision,
            streaming=True,
        )
    except (OSError, ValueError, RuntimeError) as error:
        raise DataError(
            f"data.path {settings.path!r}: neither a file or folder here nor a dataset that can be "
            f"opened on the hub ({type(error).__name__}: {error})"
        ) from None


def _records(dataset: Any, settings: DataSettings) -> Iterator[Document]:
    fields = _fields(settings)
    for number, record in enumerate(dataset, start=1):
        where = f"{settings.path}: row {number}"
        check(where, record, [fields.text])
        yield text_of(record, where, fields)


def _links(settings: DataSettings) -> Path | None:
    """The table of links, which may be in the folder of the documents."""
    return None if settings.links is None else Path(settings.links)


def _fields(settings: DataSettings) -> Fields:
    return Fields(text=settings.text_field, id=settings.id_field)
