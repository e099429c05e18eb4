"""Read the documents of a training, and build their token cache."""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import sentencex
from filelock import FileLock, Timeout
from transformers import PreTrainedTokenizerBase

import docsplit.corpora.documents
from docsplit.corpora.documents import Document, check_source, read_texts, text_of
from docsplit.corpora.fields import DataError, Fields
from docsplit.corpora.files import TYPES, same, suffix
from docsplit.corpora.tables import check
from docsplit.ranking.duplicates import HASHES, minhash
from docsplit.ranking.words import hashes
from training import tokens as layout
from training.settings import DataSettings
from training.tokens import CacheCounts, TokenCache, split_sentences, valid, whole_text_tokenizer

# Stream training documents from files, folders and Hugging Face datasets.


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


def check_documents(settings: DataSettings) -> None:
    """Look for the columns, before weights are loaded; raises like ``read_documents``."""
    path = Path(settings.path)
    if path.exists() and not _is_saved_dataset(path):
        check_source(path, _fields(settings), _links(settings), with_ids=False)
    else:
        next(read_documents(settings), None)


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
            path, _fields(settings), declared={field: "strings"}, links=links
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


# Near-duplicate removal by MinHash and locality-sensitive hashing.
#
# Two copies of a document in one batch would be negatives of each other. The build of the cache
# writes signatures to disk. It then sorts the hashes of one band after the other, which takes some
# 30 bytes of memory a document. Broder (1997), "On the resemblance and containment of documents";
# banding as in Leskovec, Rajaraman and Ullman, "Mining of Massive Datasets", section 3.4.

PERMUTATIONS = HASHES
SHINGLE_WORDS = 5
_READ_ROWS = 65_536

Signature = npt.NDArray[np.uint32]
Signatures = npt.NDArray[np.uint32]


def signature(text: str) -> Signature:
    """MinHash signature of the set of word 5-grams, uint32 ``[PERMUTATIONS]``.

    Case and white space do not matter.
    """
    words = hashes(text.lower().split())
    count = max(1, len(words) - SHINGLE_WORDS + 1)
    grams = words[:count]
    for place in range(1, min(SHINGLE_WORDS, len(words))):
        grams = grams * np.uint32(0x9E3779B1) ^ words[place : place + count]
    return minhash(grams)


def bands_for(threshold: float) -> int:
    """Number of bands that finds a pair at ``threshold`` with a probability of at least .99.

    With ``b`` bands of ``r`` rows a pair of similarity ``s`` shares a bucket with probability
    ``1 - (1 - s^r)^b``. Fewer bands give fewer false candidates.
    """
    for bands in (1, 2, 4, 8, 16, 32, 48):
        if 1 - (1 - threshold ** (PERMUTATIONS // bands)) ** bands >= 0.99:
            return bands
    return PERMUTATIONS


def later_duplicates(signatures: Signatures, threshold: float) -> npt.NDArray[np.bool_]:
    """Mark documents that are near-duplicates of an earlier one.

    Args:
        signatures: uint32 ``[documents, PERMUTATIONS]``, usually a memory map.
        threshold: estimated Jaccard similarity from which two documents count as duplicates.

    Returns:
        bool ``[documents]``, true for documents to leave out. The first document of each group
        stays.
    """
    dropped = np.zeros(len(signatures), dtype=np.bool_)
    bands = bands_for(threshold)
    rows = PERMUTATIONS // bands
    for band in range(bands):
        for bucket in _buckets(signatures, slice(band * rows, (band + 1) * rows)):
            _mark(signatures, bucket, threshold, dropped)
    return dropped


def _buckets(signatures: Signatures, columns: slice) -> Iterator[npt.NDArray[np.int64]]:
    """Ascending document numbers that share one band's hash."""
    blocks = range(0, len(signatures), _READ_ROWS)
    keys = [_hash(signatures[start : start + _READ_ROWS, columns]) for start in blocks]
    key = np.concatenate(keys or [np.empty(0, np.uint64)])
    order = np.argsort(key, kind="stable")
    changes = np.flatnonzero(np.diff(key[order])) + 1
    edges = np.concatenate([[0], changes, [len(key)]])
    for shared in np.flatnonzero(np.diff(edges) > 1):
        yield order[edges[shared] : edges[shared + 1]]


def _hash(band: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint64]:
    """FNV-1a over the rows' values, uint64 ``[documents]``."""
    state = np.full(len(band), 14695981039346656037, dtype=np.uint64)
    for column in band.T:
        state = (state ^ column.astype(np.uint64)) * np.uint64(1099511628211)
    return state ^ (state >> np.uint64(32))


def _mark(
    signatures: Signatures,
    bucket: npt.NDArray[np.int64],
    threshold: float,
    dropped: npt.NDArray[np.bool_],
) -> None:
    rest = bucket[~dropped[bucket]]
    while len(rest) > 1:
        leader, others = rest[0], rest[1:]
        similar = np.empty(len(others), dtype=np.bool_)
        for start in range(0, len(others), _READ_ROWS):
            block = signatures[others[start : start + _READ_ROWS]]
            agreement = (block == signatures[leader]).mean(axis=1)
            similar[start : start + _READ_ROWS] = agreement >= threshold
        dropped[others[similar]] = True
        rest = others[~similar]


def load_signatures(path: Path) -> Signatures:
    """Map a file of signatures, uint32 ``[documents, PERMUTATIONS]``."""
    if path.stat().st_size == 0:
        return np.empty((0, PERMUTATIONS), dtype=np.uint32)
    return np.memmap(path, dtype=np.uint32, mode="r").reshape(-1, PERMUTATIONS)


# Build the token cache: read, segment, tokenise, and mark near-duplicates.
#
# The build is resumable. It records the sizes of the files after every ``_BLOCK`` documents.
# After an interruption it cuts the files back to the recorded sizes and continues from there.

FORMAT = 4
_BLOCK = 100
_SAID_SECONDS = 10.0
_PROGRESS = "progress.json"
_STREAMS = (
    layout.TOKENS,
    layout.SENTENCES,
    layout.DOCUMENTS,
    layout.IDENTITIES,
    layout.NAMES,
    layout.SIGNATURES,
)

Report = Callable[[int, str], None]


def open_cache(
    settings: DataSettings,
    tokenizer: PreTrainedTokenizerBase,
    report: Report = lambda count, what: None,
) -> TokenCache:
    """The token cache of these documents with this tokenizer; builds it if it does not exist.

    While another process builds it, this one waits.

    Args:
        settings: where the documents are and which documents to leave out.
        tokenizer: a fast tokenizer; special tokens are not stored.
        report: called with the number of documents read so far and the current activity.

    Raises:
        DataError: the data are unreadable, or no document has ``min_sentences`` sentences.
    """
    root = settings.cache / cache_key(settings, tokenizer)
    if not (root / layout.META).is_file():
        root.parent.mkdir(parents=True, exist_ok=True)
        with _lock(root.with_name(root.name + ".lock"), report):
            if not (root / layout.META).is_file():
                with _named(root):
                    _build(root, settings, tokenizer, report)
    return TokenCache(root)


@contextmanager
def _named(folder: Path) -> Iterator[None]:
    """Names the folder in the error of a full disk, which has no name of its own."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, str(folder)) from error


@contextmanager
def _lock(path: Path, report: Report) -> Iterator[None]:
    lock = FileLock(path, timeout=_SAID_SECONDS)
    while not lock.is_locked:
        try:
            lock.acquire()
        except Timeout:
            report(0, "waiting for another run, which prepares the same documents")
    try:
        yield
    finally:
        lock.release()


def _build(
    root: Path, settings: DataSettings, tokenizer: PreTrainedTokenizerBase, report: Report
) -> None:
    building = root.with_name(root.name + ".partial")
    building.mkdir(exist_ok=True)
    _Build(building, settings, tokenizer, report).run()
    if root.exists():
        shutil.rmtree(root)
    building.rename(root)


def cache_key(settings: DataSettings, tokenizer: PreTrainedTokenizerBase) -> str:
    """Digest of everything the content of the cache depends on."""
    parts = {
        "format": FORMAT,
        "data": fingerprint(settings),
        "tokenizer": tokenizer_digest(tokenizer),
        "limit": settings.limit,
        "language": settings.language,
        "mask_pattern": settings.mask_pattern,
        "min_sentences": settings.min_sentences,
        "near_duplicates": settings.near_duplicates,
        "sentencex": getattr(sentencex, "__version__", ""),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


def tokenizer_digest(tokenizer: PreTrainedTokenizerBase) -> str:
    """SHA-256 of the tokenizer without its truncation and padding settings."""
    return hashlib.sha256(whole_text_tokenizer(tokenizer).to_str().encode()).hexdigest()


class _Build:
    def __init__(
        self,
        root: Path,
        settings: DataSettings,
        tokenizer: PreTrainedTokenizerBase,
        report: Report,
    ) -> None:
        self.root = root
        self.settings = settings
        self.backend = whole_text_tokenizer(tokenizer)
        self.token_type = "uint16" if len(tokenizer) <= 1 << 16 else "uint32"
        self.report = report
        self.pattern = re.compile(settings.mask_pattern) if settings.mask_pattern else None
        self.read = self.too_short = self.sentences = self.tokens = 0

    def run(self) -> None:
        self._resume()
        with ExitStack() as stack:
            streams: dict[str, IO[bytes]] = {
                name: stack.enter_context((self.root / name).open("ab")) for name in _STREAMS
            }
            for block in self._blocks():
                self._append(block, streams)
                self._commit(streams)
        if self.sentences == 0:
            shutil.rmtree(self.root)
            raise DataError(
                f"{self.settings.path}: {self.read} documents read, none with "
                f"{self.settings.min_sentences} sentences or more"
            )
        kept = self._mark_duplicates()
        counts = CacheCounts(
            read=self.read,
            too_short=self.too_short,
            duplicates=int((~kept).sum()),
            sentences=self.sentences,
            tokens=self.tokens,
            token_type=self.token_type,
        )
        text = json.dumps(asdict(counts), indent=2) + "\n"
        (self.root / layout.META).write_text(text, encoding="utf-8")
        # without its progress, an interrupted build begins again
        (self.root / _PROGRESS).unlink()
        (self.root / layout.SIGNATURES).unlink()

    def _blocks(self) -> Iterator[list[Document]]:
        documents = islice(read_documents(self.settings), self.read, self.settings.limit)
        while block := list(islice(documents, _BLOCK)):
            yield block

    def _append(self, block: list[Document], streams: dict[str, IO[bytes]]) -> None:
        for document in block:
            self.read += 1
            text = valid(document.text)
            text = self.pattern.sub("", text) if self.pattern else text
            sentences = split_sentences(text, self.settings.language)
            encoded = self._encode(sentences)
            if len(encoded) < self.settings.min_sentences:
                self.too_short += 1
                continue
            self._append_sentences(document, encoded, streams)
            sketch = signature(text) if self.settings.near_duplicates else np.empty(0, np.uint32)
            streams[layout.SIGNATURES].write(sketch.tobytes())
        self.report(self.read, "segmenting and tokenising")

    def _encode(self, sentences: list[str]) -> list[bytes]:
        # Byte-level and SentencePiece vocabularies distinguish a word after a space from one at the
        # start.
        spaced = [s if i == 0 else " " + s for i, s in enumerate(sentences)]
        encodings = self.backend.encode_batch_fast(spaced, add_special_tokens=False)
        return [np.asarray(e.ids, dtype=self.token_type).tobytes() for e in encodings if e.ids]

    def _append_sentences(
        self, document: Document, sentences: list[bytes], streams: dict[str, IO[bytes]]
    ) -> None:
        width = np.dtype(self.token_type).itemsize
        for sentence in sentences:
            self.tokens += len(sentence) // width
            self.sentences += 1
            streams[layout.TOKENS].write(sentence)
            streams[layout.SENTENCES].write(np.int64(self.tokens).tobytes())
        streams[layout.DOCUMENTS].write(np.int64(self.sentences).tobytes())
        identity = hashlib.sha256(document.id.encode("utf-8", "surrogatepass")).digest()[:8]
        streams[layout.IDENTITIES].write(identity)
        name = " ".join(document.id.splitlines()).encode("utf-8", "replace")
        streams[layout.NAMES].write(name + b"\n")

    def _commit(self, streams: dict[str, IO[bytes]]) -> None:
        for stream in streams.values():
            stream.flush()
        record: dict[str, Any] = {
            "sizes": {name: stream.tell() for name, stream in streams.items()},
            "read": self.read,
            "too_short": self.too_short,
            "sentences": self.sentences,
            "tokens": self.tokens,
        }
        fresh = self.root / (_PROGRESS + ".new")
        fresh.write_text(json.dumps(record), encoding="utf-8")
        os.replace(fresh, self.root / _PROGRESS)

    def _resume(self) -> None:
        path = self.root / _PROGRESS
        if not path.is_file():
            for name in _STREAMS:
                (self.root / name).unlink(missing_ok=True)
            return
        record = json.loads(path.read_text(encoding="utf-8"))
        for name, size in record["sizes"].items():
            os.truncate(self.root / name, size)
        self.read = record["read"]
        self.too_short = record["too_short"]
        self.sentences = record["sentences"]
        self.tokens = record["tokens"]

    def _mark_duplicates(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        self.report(self.read, "looking for near-duplicates")
        documents = (self.root / layout.DOCUMENTS).stat().st_size // 8
        if self.settings.near_duplicates:
            signatures = load_signatures(self.root / layout.SIGNATURES)
            kept = ~later_duplicates(signatures, self.settings.near_duplicates)
        else:
            kept = np.ones(documents, dtype=np.bool_)
        kept.tofile(self.root / layout.KEPT)
        return kept
