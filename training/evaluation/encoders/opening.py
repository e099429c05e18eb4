"""Open the encoders that the command line names."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from docsplit.bundles import format as bundle
from docsplit.bundles.manifest import MANIFEST, BundleError
from docsplit.engines.choice import ArithmeticWish
from export.errors import ExportError
from export.requirements import absence
from training.errors import SettingsError
from training.evaluation.encoders.cached import CachedEncoder
from training.evaluation.encoders.interface import Encoder, Representation
from training.evaluation.encoders.random_vectors import RandomVectors
from training.evaluation.encoders.service import ServiceEncoder
from training.evaluation.encoders.store import Store
from training.evaluation.encoders.tf_idf import TfIdf
from training.evaluation.progress import EmbeddingProgress

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
    progress: EmbeddingProgress | None = None,
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
        from training.evaluation.encoders.bundle import BundleEncoder

        try:
            encoder = BundleEncoder(Path(place), name, precision)
        except (BundleError, ExportError) as error:
            raise SettingsError(str(error)) from None
        yield encoder
    else:
        _check_folder(place)
        # Imported only when needed: torch and transformers take seconds to import.
        from training.evaluation.encoders.folder import FolderEncoder

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
