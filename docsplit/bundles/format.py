"""The bundle format: ``docsplit-export`` writes it, the service reads it.

A bundle of an encoder is a folder::

    bundle.json       ``docsplit.bundles.manifest.Manifest``
    tokenizer.json    a Hugging Face ``tokenizers`` file, without truncation or padding
    model.fp16.onnx   fused graph, fp16
    model.fp16.onnx.data  its weights, if they do not fit into one file
    model.packed.onnx the same without padding, for CUDA only
    model.int8.xml    W8A8 graph (OpenVINO IR), weights in model.int8.bin
    heads/<name>.onnx small graphs on top of the vectors

Every graph of the encoder takes ``input_ids`` and ``attention_mask`` (int64, ``[batch, tokens]``)
and returns ``sentence_embedding`` (float32, ``[batch, dimensions]``), pooled and L2-normalised
inside. A head takes ``features`` (float32, ``[batch, inputs]``) and returns ``logits`` and
``probabilities`` (float32, ``[batch, labels]``).

A bundle of a re-ranker has the same files without heads, and a ``RerankerManifest``. Its graphs
take the same inputs, a query and a text in one row, and return ``logits`` (float32,
``[batch, 1]``).
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import (
    ValidationError,
)

from docsplit.bundles.manifest import (
    FORMAT,
    MANIFEST,
    BundleError,
    Contents,
    FileEntry,
    Manifest,
    PrecisionName,
    RerankerManifest,
)

DEFAULT_BUNDLE = Path(__file__).resolve().parent.parent / "models" / "docsplit-minilm-l6-v3"


M = TypeVar("M", bound=Contents[Any])


class Folder(Generic[M]):
    """A validated bundle of any kind on disk."""

    def __init__(self, root: Path, manifest: M) -> None:
        self.root = root
        self.manifest = manifest

    def path(self, name: str) -> Path:
        """Absolute path of one of the bundle's files.

        Raises:
            BundleError: the manifest does not list the file, so no digest covers its content.
        """
        if name not in self.manifest.files:
            raise BundleError(f"{self.root}: {MANIFEST} lists no file {name!r}")
        return self.root / name

    def graph(self, precision: PrecisionName) -> Path:
        """Path of the graph of ``precision``.

        Raises:
            BundleError: the bundle has no graph of this precision.
        """
        entry = self.manifest.precisions.get(precision)
        if entry is None:
            held = ", ".join(self.manifest.precisions)
            raise BundleError(f"{self.root}: this bundle has no {precision} graph (it has {held})")
        return self.path(entry.file)


class Bundle(Folder[Manifest]):
    """A bundle of an encoder."""


class RerankerBundle(Folder[RerankerManifest]):
    """A bundle of a re-ranker."""


def digest(path: Path) -> FileEntry:
    """SHA-256 and size of a file, read in blocks."""
    with path.open("rb") as stream:
        return FileEntry(
            sha256=hashlib.file_digest(stream, "sha256").hexdigest(), bytes=path.stat().st_size
        )


def seal(root: Path, **fields: object) -> Manifest:
    """Hash every file below ``root``, compute the revision and write ``bundle.json``.

    Args:
        root: folder with all files of the bundle except the manifest.
        fields: the ``Manifest`` fields except ``files`` and ``revision``.

    Raises:
        BundleError: the fields do not make a valid manifest.
    """
    return _seal(root, Manifest, _DEFAULTS | fields)


def seal_reranker(root: Path, **fields: object) -> RerankerManifest:
    """Do the same as ``seal`` for a re-ranker, with the fields of ``RerankerManifest``."""
    return _seal(root, RerankerManifest, {"format": FORMAT, "kind": "reranker"} | fields)


def _seal(root: Path, kind: type[M], fields: dict[str, Any]) -> M:
    files = {
        p.relative_to(root).as_posix(): digest(p)
        for p in sorted(root.rglob("*"))
        if p.is_file() and p.name != MANIFEST
    }
    values: dict[str, Any] = {**fields, "files": files}
    draft = kind.model_construct(**values)
    manifest = _validated(root, kind, {**values, "revision": draft.content_hash()})
    write(root, manifest)
    return manifest


def validated(root: Path, values: dict[str, Any]) -> Manifest:
    """Make a manifest of these fields.

    Raises:
        BundleError: they make no valid manifest; the message names the fields.
    """
    return _validated(root, Manifest, values)


def _validated(root: Path, kind: type[M], values: dict[str, Any]) -> M:
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise BundleError(f"{root}: {_reasons(error)}") from error


def write(root: Path, manifest: Contents[Any]) -> None:
    """Write ``bundle.json`` as a whole or not at all."""
    replace(root / MANIFEST, (manifest.model_dump_json(indent=2) + "\n").encode())


def replace(path: Path, content: bytes) -> None:
    """Write a file as a whole or not at all, also on a full disk.

    Raises:
        OSError: it cannot be written; a former file of the name stays.
    """
    draft = path.with_name(f"{path.name}.part")
    try:
        with draft.open("wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


_DEFAULTS: dict[str, object] = {
    "format": FORMAT,
    "normalised": True,
    "prompts": {},
    "default_prompt": None,
    "heads": {},
}


def load(root: Path, *, verify: bool = True) -> Bundle:
    """Open a bundle of an encoder.

    Args:
        root: the bundle's folder.
        verify: compare every file with its digest.

    Raises:
        BundleError: no manifest, another format, a re-ranker, or a file is missing, truncated or
            changed.
    """
    found = load_any(root, verify=verify)
    if isinstance(found, RerankerBundle):
        raise BundleError(f"{root}: is a re-ranker; serve it with --reranker")
    return found


def load_reranker(root: Path, *, verify: bool = True) -> RerankerBundle:
    """Open a bundle of a re-ranker, as ``load`` opens one of an encoder."""
    found = load_any(root, verify=verify)
    if isinstance(found, Bundle):
        raise BundleError(f"{root}: is an encoder, no re-ranker; serve it with --bundle")
    return found


def load_any(root: Path, *, verify: bool = True) -> Bundle | RerankerBundle:
    """Open a bundle of either kind; see ``load``."""
    path = root / MANIFEST
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise BundleError(f"{path}: no such file; is {root} a bundle?") from error
    except OSError as error:
        raise BundleError(f"{path}: {error.strerror}") from error
    try:
        if _is_reranker(content):
            opened: Bundle | RerankerBundle = RerankerBundle(
                root.resolve(), RerankerManifest.model_validate_json(content)
            )
        else:
            opened = Bundle(root.resolve(), Manifest.model_validate_json(content))
    except ValidationError as error:
        raise BundleError(f"{path}: {_reasons(error)}") from error
    for name, entry in opened.manifest.files.items():
        _check(root / name, entry, verify=verify)
    return opened


def _is_reranker(content: bytes) -> bool:
    try:
        found = json.loads(content)
    except (RecursionError, ValueError):
        return False
    return isinstance(found, dict) and found.get("kind") == "reranker"


def _check(path: Path, entry: FileEntry, *, verify: bool) -> None:
    if not path.is_file():
        raise BundleError(f"{path}: missing, but {MANIFEST} lists it")
    size = path.stat().st_size
    if size != entry.bytes:
        raise BundleError(f"{path}: {size} bytes, {MANIFEST} says {entry.bytes}")
    if verify and digest(path).sha256 != entry.sha256:
        raise BundleError(f"{path}: content differs from the digest in {MANIFEST}")


def _reasons(error: ValidationError) -> str:
    return "; ".join(
        f"{'.'.join(map(str, e['loc'])) or 'manifest'}: {e['msg'].removeprefix('Value error, ')}"
        for e in error.errors()
    )
