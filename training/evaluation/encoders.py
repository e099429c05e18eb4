"""Encoders with one interface, a cache of their vectors, and controls that ignore meaning."""

import argparse
import base64
import hashlib
import os
import re
import sqlite3
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias, get_args

import httpx
import numpy as np
import numpy.typing as npt

from docsplit.bundles import format as bundle
from docsplit.bundles.manifest import MANIFEST, BundleError
from docsplit.corpora.fields import DataError
from docsplit.engines.choice import ArithmeticWish
from export.progress import Progress
from export.requirements import absence
from training.errors import SettingsError
from training.tokens import valid

# The interface of an encoder in an evaluation.

# whole: windows and their weighted mean. first: only the first window, filled.
Reading = Literal["whole", "first"]
Vectors: TypeAlias = npt.NDArray[np.float32]
# Vectors, or a scipy.sparse matrix of the same shape.
Features: TypeAlias = Any


class Encoder(Protocol):
    """Turns texts into unit vectors.

    Attributes:
        name: its name in the report.
        kind: its type.
        revision: changes when any vector could change.
        details: facts for the reader of the report, by name.
    """

    name: str
    kind: str
    revision: str
    details: dict[str, str]

    def encode(self, texts: Sequence[str], reading: Reading) -> Vectors:
        """Unit vectors, float32 ``[texts, dimensions]``.

        Args:
            texts: whole documents, each with at least one word.
            reading: all of a document, or its first window.
        """
        ...


class Representation:
    """Gives tasks the features of texts.

    Attributes:
        name: its name in the report.
        kind: its type.
        revision: changes when any feature could change.
        details: facts for the reader of the report, by name.
        readings: the readings that it supports.
        sparse: whether features are sparse; a linear model then replaces the perceptron.
    """

    name: str
    kind: str
    revision: str
    details: dict[str, str]
    readings: tuple[Reading, ...] = ("whole", "first")
    sparse = False

    def fitted(self, texts: Sequence[str]) -> "Representation":
        """Learn from the texts of a set. Returns itself if it learns nothing."""
        del texts
        return self

    def features(self, texts: Sequence[str], reading: Reading = "whole") -> Features:
        """Rows of unit length ``[texts, dimensions]``; a sparse row may be zero."""
        raise NotImplementedError

    def pace(self) -> float | None:
        """Seconds for 1,000 words so far; None if it computed nothing, or is not timed."""
        return None


_AT_ONCE = 500
_TABLES = """
CREATE TABLE IF NOT EXISTS vectors (
    reading TEXT, digest BLOB, vector BLOB, PRIMARY KEY (reading, digest)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS spent (words INTEGER, seconds REAL);
"""


def text_digest(text: str) -> bytes:
    """SHA-256 of a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


class Store:
    """Vectors of one encoder in an SQLite file.

    Vectors survive a kill once ``put`` has returned. Two processes may share the file.

    Args:
        folder: the folder of all stores.
        revision: revision of the encoder.
    """

    def __init__(self, folder: Path, revision: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = path = folder / f"{hashlib.sha256(revision.encode()).hexdigest()[:32]}.sqlite"
        try:
            self._database = sqlite3.connect(path, timeout=60)
            self._database.executescript(_TABLES)
        except sqlite3.DatabaseError as error:
            raise DataError(f"{path}: not a readable vector cache ({error}); delete it") from None

    def get(self, digests: Sequence[bytes], reading: Reading) -> dict[bytes, Vectors]:
        """The stored vectors among those requested, each float32 ``[dimensions]``."""
        found: dict[bytes, Vectors] = {}
        for first in range(0, len(digests), _AT_ONCE):
            part = list(digests[first : first + _AT_ONCE])
            marks = ",".join("?" * len(part))
            rows = self._database.execute(
                f"SELECT digest, vector FROM vectors WHERE reading = ? AND digest IN ({marks})",  # noqa: S608 - only question marks
                [reading, *part],
            )
            found.update((digest, np.frombuffer(vector, dtype="<f4")) for digest, vector in rows)
        return found

    def put(
        self, digests: Sequence[bytes], vectors: Vectors, reading: Reading, words: int, secs: float
    ) -> None:
        """Store vectors and the time that they took.

        Raises:
            DataError: the disk is full or not writable.
        """
        rows = [
            (reading, digest, np.asarray(vector, dtype="<f4").tobytes())
            for digest, vector in zip(digests, vectors, strict=True)
        ]
        try:
            with self._database:
                self._database.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)", rows)
                self._database.execute("INSERT INTO spent VALUES (?, ?)", (words, secs))
        except sqlite3.DatabaseError as error:
            raise DataError(
                f"{self._path}: could not be written ({error}); free space, then repeat the command"
            ) from None

    def pace(self) -> float | None:
        """Seconds for 1,000 words: the median over all groups of texts computed so far.

        Texts repeated a hundred times, whose windows are cached, would dominate a mean.
        """
        spent = self._database.execute("SELECT words, seconds FROM spent WHERE words > 0")
        found = [1000 * seconds / words for words, seconds in spent]
        return statistics.median(found) if found else None

    def close(self) -> None:
        """Close the file."""
        self._database.close()


_GROUP_TEXTS = 64
_GROUP_CHARACTERS = 200_000
_UNIT = 1e-3


class CachedEncoder(Representation):
    """A ``Representation`` of an encoder that keeps its vectors on disk.

    It stores each group of texts as soon as it is computed, so an interruption loses at most one
    group.

    Args:
        encoder: computes missing vectors.
        store: the vectors of the encoder's revision.
        progress: shows the progress.
        clock: the time in seconds.
    """

    def __init__(
        self,
        encoder: Encoder,
        store: Store,
        progress: Progress | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name, self.kind = encoder.name, encoder.kind
        self.revision, self.details = encoder.revision, encoder.details
        self.encoder, self._store = encoder, store
        self._progress = progress or Progress()
        self._clock = clock

    def features(self, texts: Sequence[str], reading: Reading = "whole") -> Vectors:
        """Unit vectors, float32 ``[texts, dimensions]``.

        Raises:
            DataError: the encoder returned something else.
        """
        digests = [text_digest(text) for text in texts]
        by_digest = dict(zip(digests, texts, strict=True))
        held = self._store.get(list(by_digest), reading)
        missing = [digest for digest in by_digest if digest not in held]
        if missing:
            # Texts of similar length need the least padding.
            missing.sort(key=lambda digest: len(by_digest[digest]))
            held |= self._computed(missing, by_digest, reading)
        return np.stack([held[digest] for digest in digests])

    def _computed(
        self, missing: list[bytes], texts: dict[bytes, str], reading: Reading
    ) -> dict[bytes, Vectors]:
        found: dict[bytes, Vectors] = {}
        total = sum(len(texts[digest]) for digest in missing)
        with self._progress.counted(
            f"{self.name}: embedding {len(missing)} texts", total
        ) as advance:
            for group in _groups(missing, texts):
                own = [valid(texts[digest]) for digest in group]
                began = self._clock()
                vectors = self._checked(self.encoder.encode(own, reading), len(own))
                seconds = self._clock() - began
                # First windows hold only some of the words.
                words = sum(len(text.split()) for text in own) if reading == "whole" else 0
                self._store.put(group, vectors, reading, words, seconds)
                found.update(zip(group, vectors, strict=True))
                advance(sum(map(len, own)))
        return found

    def _checked(self, vectors: Vectors, count: int) -> Vectors:
        vectors = np.asarray(vectors, dtype=np.float32)
        if vectors.ndim != 2 or len(vectors) != count or not np.isfinite(vectors).all():
            raise DataError(
                f"{self.name}: expected {count} finite vectors, got an array of {vectors.shape}"
            )
        lengths = np.linalg.norm(vectors, axis=1)
        if np.abs(lengths - 1).max() > _UNIT:
            raise DataError(f"{self.name}: vectors have length {lengths.min()} to {lengths.max()}")
        return vectors

    def pace(self) -> float | None:
        """Seconds for 1,000 words, in this and earlier runs."""
        return self._store.pace()


def _groups(digests: list[bytes], texts: dict[bytes, str]) -> Iterator[list[bytes]]:
    group: list[bytes] = []
    characters = 0
    for digest in digests:
        length = len(texts[digest])
        if group and (len(group) == _GROUP_TEXTS or characters + length > _GROUP_CHARACTERS):
            yield group
            group, characters = [], 0
        group.append(digest)
        characters += length
    yield group


class RandomVectors:
    """Uniformly random directions, equal for equal texts, nearly orthogonal for different ones."""

    name = "random"
    kind = "control"

    def __init__(self, dimensions: int = 384) -> None:
        self._dimensions = dimensions
        self.revision = f"random-{dimensions}"
        self.details = {"dimensions": str(dimensions)}

    def encode(self, texts: Sequence[str], reading: Reading) -> Vectors:
        """Unit vectors, float32 ``[texts, dimensions]``; ``reading`` has no effect."""
        del reading
        rows = np.stack([self._row(text) for text in texts])
        return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float32)

    def _row(self, text: str) -> np.ndarray:
        draw = np.random.default_rng(int.from_bytes(text_digest(text)[:16]))
        return draw.standard_normal(self._dimensions)


class TextsOnly(Representation):
    """Replaces an encoder; it has no features."""

    name = "the texts"
    kind = "texts"
    revision = "texts"
    sparse = True

    def __init__(self) -> None:
        self.details = {}


_ANY_WORD = r"\w+"


class TfIdf(Representation):
    """TF-IDF weights (logarithmic counts, smoothed inverse document frequencies, unit length).

    Words and document frequencies come from the texts that it is fitted on.
    """

    name = "tf-idf"
    kind = "control"
    revision = "tf-idf-1"
    readings = ("whole",)
    sparse = True

    def __init__(self, vectorizer: Any = None) -> None:
        self._vectorizer = vectorizer
        self.details = {"model": "TF-IDF, linear SVM on top"}

    def fitted(self, texts: Sequence[str]) -> "TfIdf":
        """Learn the words of these texts."""
        from sklearn.feature_extraction.text import TfidfVectorizer

        try:
            return TfIdf(TfidfVectorizer(sublinear_tf=True).fit(texts))
        except ValueError:
            # no word has two letters
            return TfIdf(TfidfVectorizer(sublinear_tf=True, token_pattern=_ANY_WORD).fit(texts))

    def features(self, texts: Sequence[str], reading: Reading = "whole") -> Features:
        """Sparse rows ``[texts, words]``."""
        if reading != "whole":
            raise ValueError("TF-IDF has no windows")
        return self._vectorizer.transform(texts)


KEY_VARIABLE = "DOCSPLIT_KEY"
_TIMEOUT_SECONDS = 600
_TRIES = 20
_MOST_WAIT = 30.0


class ServiceEncoder:
    """The vectors that a service returns. The service cuts windows and pools them.

    The environment variable ``DOCSPLIT_KEY`` holds the bearer key.

    Args:
        url: address of the service, such as ``http://localhost:8080``.
        name: its name in the report; default the model's name.

    Raises:
        SettingsError: no docsplit service answers at the address.
    """

    kind = "service"

    def __init__(self, url: str, name: str | None = None) -> None:
        self._url = url.rstrip("/")
        info = self._read("/info", None)
        try:
            engine = info["engine"] or {}
            precision = engine.get("precision", info["model_dtype"])
            runtime = engine.get("name", "unknown")
            self.name = name or str(info["model_id"])
            self.revision = f"service-{info['model_sha']}-{runtime}-{precision}"
            self.details = {
                "model": str(info["model_id"]),
                "revision": str(info["model_sha"])[:12],
                "window": f"{info['window_tokens']} tokens",
                "arithmetic": f"{precision}, {runtime}",
            }
        except (KeyError, TypeError, AttributeError):
            raise SettingsError(f"{url}: not a docsplit service (its /info differs)") from None

    def encode(self, texts: Sequence[str], reading: Reading) -> Vectors:
        """Unit vectors, float32 ``[texts, dimensions]``.

        Raises:
            SettingsError: the service refuses. The message contains its answer.
        """
        body = {
            "inputs": list(texts),
            "truncate": reading == "first",
            "encoding_format": "base64",
        }
        answer = self._read("/embed", body)
        rows = [np.frombuffer(base64.b64decode(vector), dtype="<f4") for vector in answer]
        return np.stack(rows).astype(np.float32)

    def _read(self, path: str, body: Any) -> Any:
        address = self._url + path
        key = os.environ.get(KEY_VARIABLE)
        headers = {"x-request-timeout": str(_TIMEOUT_SECONDS)}
        for tried in range(1, _TRIES + 1):
            try:
                answer = httpx.request(
                    "POST" if body else "GET",
                    address,
                    json=body,
                    headers=headers | ({"authorization": f"Bearer {key}"} if key else {}),
                    timeout=_TIMEOUT_SECONDS + 10,
                    follow_redirects=True,
                )
                if answer.status_code in (429, 503, 504) and tried < _TRIES:
                    time.sleep(min(_MOST_WAIT, float(answer.headers.get("retry-after", 1))))
                    continue
                if answer.is_error:
                    raise SettingsError(f"{address}: {_said(answer)}")
                return answer.json()
            except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
                raise SettingsError(f"{address}: no answer ({error})") from None
        raise AssertionError("the last try raises")


def _said(answer: httpx.Response) -> str:
    try:
        said = answer.json()["error"]
    except (ValueError, LookupError, TypeError):
        said = answer.reason_phrase
    hints = {
        401: f"; set {KEY_VARIABLE}",
        413: "; start the service with a higher --max-document-tokens or --max-body-bytes",
    }
    return f"{answer.status_code} {said}{hints.get(answer.status_code, '')}"


def add_precision_flag(parser: argparse.ArgumentParser) -> None:
    """Add ``--precision``."""
    parser.add_argument(
        "--precision",
        choices=get_args(ArithmeticWish),
        default="auto",
        help="in which a bundle computes, as for docsplit-serve; default: auto, what the service "
        "chooses on this machine",
    )


CONTROLS = ("random", "tf-idf")
_NAMED = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9 ._+-]*)=(?P<place>.+)")


@contextmanager
def opened(
    given: str,
    cache: Path,
    *,
    max_tokens: int | None = None,
    precision: ArithmeticWish = "auto",
    trust_remote_code: bool = False,
    progress: Progress | None = None,
) -> Iterator[Representation]:
    """Open an encoder and its cache for the duration of the context.

    Args:
        given: a folder with a bundle or a sentence-transformers encoder, the URL of a service, a
            name on the hub, ``random`` or ``tf-idf``. A prefix ``NAME=`` sets its name.
        cache: folder of the vectors.
        max_tokens: window of a sentence-transformers encoder.
        precision: in which a bundle computes.
        trust_remote_code: run modelling code in the folder of its weights.
        progress: shows the progress of embedding.

    Raises:
        SettingsError: there is no such encoder, or the bundle is not valid or does not run on
            this machine in this precision.
    """
    name, place = split_name(given)
    if place == "tf-idf":
        yield TfIdf()
        return
    with _encoder(place, name, max_tokens, precision, trust_remote_code) as encoder:
        store = Store(cache, encoder.revision)
        try:
            yield CachedEncoder(encoder, store, progress)
        finally:
            store.close()


def name_of(given: str) -> str:
    """The name in the report of the encoder that ``opened`` opens for ``given``.

    Raises:
        SettingsError: there is no such encoder.
    """
    name, place = split_name(given)
    if place in CONTROLS:
        return place
    if _is_service(place):
        return ServiceEncoder(place, name).name
    if Path(place, MANIFEST).is_file():
        try:
            return name or bundle.load(Path(place)).manifest.name
        except BundleError as error:
            raise SettingsError(str(error)) from None
    _check_folder(place)
    reason = absence(place)
    if reason is not None:
        raise SettingsError(f"{place!r}: {reason}")
    return name or _folder_name(place)


def split_name(given: str) -> tuple[str | None, str]:
    """The name and the place of ``NAME=PLACE``; the name is optional."""
    found = _NAMED.fullmatch(given)
    return (found["name"], found["place"]) if found else (None, given)


@contextmanager
def _encoder(
    place: str,
    name: str | None,
    max_tokens: int | None,
    precision: ArithmeticWish,
    trust_remote_code: bool,
) -> Iterator[Encoder]:
    if place == "random":
        yield RandomVectors()
    elif _is_service(place):
        yield ServiceEncoder(place, name)
    elif Path(place, MANIFEST).is_file():
        # Imported only when needed: it imports onnx.
        from training.evaluation.local_encoders import BundleEncoder

        try:
            encoder = BundleEncoder(Path(place), name, precision)
        except BundleError as error:
            raise SettingsError(str(error)) from None
        yield encoder
    else:
        _check_folder(place)
        # Imported only when needed: torch and transformers take seconds to import.
        from training.evaluation.local_encoders import FolderEncoder

        yield FolderEncoder(
            place, name or _folder_name(place), max_tokens, trust_remote_code=trust_remote_code
        )


def _is_service(place: str) -> bool:
    return re.match(r"https?://", place) is not None


def _folder_name(place: str) -> str:
    return Path(place).resolve().name


def _check_folder(place: str) -> None:
    path = Path(place)
    if path.is_file() or (path.is_dir() and not (path / "config.json").is_file()):
        raise SettingsError(
            f"{place}: give the folder of a bundle ({MANIFEST}) or of a sentence-transformers "
            "encoder (config.json), a service's URL, or a name on the hub"
        )
