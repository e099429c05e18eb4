"""The bundle format: ``docsplit-export`` writes it, the service reads it.

A bundle is a folder::

    bundle.json       ``bundles.manifest.Manifest``
    tokenizer.json    a Hugging Face ``tokenizers`` file, without truncation or padding
    model.fp16.onnx   fused graph, fp16
    model.packed.onnx the same without padding, for CUDA only
    model.int8.xml    W8A8 graph (OpenVINO IR), weights in model.int8.bin
    heads/<name>.onnx small graphs on top of the vectors

Every graph of the encoder takes ``input_ids`` and ``attention_mask`` (int64, ``[batch, tokens]``)
and returns ``sentence_embedding`` (float32, ``[batch, dimensions]``), pooled and L2-normalised
inside. A head takes ``features`` (float32, ``[batch, inputs]``) and returns ``logits`` and
``probabilities`` (float32, ``[batch, labels]``).
"""

import hashlib
from pathlib import Path
from typing import Any

from pydantic import (
    ValidationError,
)

from bundles.manifest import FORMAT, MANIFEST, BundleError, FileEntry, Manifest, PrecisionName


class Bundle:
    """A validated bundle on disk."""

    def __init__(self, root: Path, manifest: Manifest) -> None:
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
    files = {
        p.relative_to(root).as_posix(): digest(p)
        for p in sorted(root.rglob("*"))
        if p.is_file() and p.name != MANIFEST
    }
    values: dict[str, Any] = {**_DEFAULTS, **fields, "files": files}
    draft = Manifest.model_construct(**values)
    manifest = validated(root, {**values, "revision": draft.content_hash()})
    write(root, manifest)
    return manifest


def validated(root: Path, values: dict[str, Any]) -> Manifest:
    """Make a manifest of these fields.

    Raises:
        BundleError: they make no valid manifest; the message names the fields.
    """
    try:
        return Manifest.model_validate(values)
    except ValidationError as error:
        raise BundleError(f"{root}: {_reasons(error)}") from error


def write(root: Path, manifest: Manifest) -> None:
    """Write ``bundle.json`` atomically."""
    draft = root / f"{MANIFEST}.part"
    draft.write_text(manifest.model_dump_json(indent=2) + "\n", encoding="utf-8")
    draft.replace(root / MANIFEST)


_DEFAULTS: dict[str, object] = {
    "format": FORMAT,
    "normalised": True,
    "prompts": {},
    "default_prompt": None,
    "heads": {},
}


def load(root: Path, *, verify: bool = True) -> Bundle:
    """Open a bundle.

    Args:
        root: the bundle's folder.
        verify: compare every file with its digest.

    Raises:
        BundleError: no manifest, another format, or a file is missing, truncated or changed.
    """
    path = root / MANIFEST
    try:
        manifest = Manifest.model_validate_json(path.read_bytes())
    except FileNotFoundError as error:
        raise BundleError(f"{path}: no such file; is {root} a bundle?") from error
    except OSError as error:
        raise BundleError(f"{path}: {error.strerror}") from error
    except ValidationError as error:
        raise BundleError(f"{path}: {_reasons(error)}") from error
    for name, entry in manifest.files.items():
        _check(root / name, entry, verify=verify)
    return Bundle(root.resolve(), manifest)


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
        f"{'.'.join(map(str, e['loc'])) or 'manifest'}: {e['msg']}" for e in error.errors()
    )
