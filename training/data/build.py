"""Build the token cache: read, segment, tokenise, and mark near-duplicates.

The build is resumable. It records the sizes of the files after every ``_BLOCK`` documents. After
an interruption it cuts the files back to the recorded sizes and continues from there.
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np
import sentencex
from filelock import FileLock, Timeout
from transformers import PreTrainedTokenizerBase

from docsplit.corpora.documents import Document
from docsplit.corpora.fields import DataError
from training.data import cache as layout
from training.data.cache import CacheCounts, TokenCache
from training.data.near_duplicates import later_duplicates, load_signatures, signature
from training.data.sentences import split_sentences, valid
from training.data.sources import fingerprint, read_documents
from training.data.specials import whole_text_tokenizer
from training.settings import DataSettings

FORMAT = 3
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
        CacheCounts(
            read=self.read,
            too_short=self.too_short,
            duplicates=int((~kept).sum()),
            sentences=self.sentences,
            tokens=self.tokens,
            token_type=self.token_type,
        ).write(self.root / layout.META)
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
