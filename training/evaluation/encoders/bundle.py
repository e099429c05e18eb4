"""A bundle's graph on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bundles import format as bundle
from bundles.manifest import TOKENIZER, PrecisionName
from export.checks.engines import can_run, named, open_engine
from training.evaluation.encoders.interface import Reading, Vectors
from windowing.documents import document_vectors, read
from windowing.tokens import DocumentTokenizer

# what the service computes where it can, the best first
_ORDER: tuple[PrecisionName, ...] = ("packed", "int8", "fp16")
_BATCH_TOKENS = 2048
_CUDA_BATCH_TOKENS = 32_768


class BundleEncoder:
    """The vectors that a service of the bundle answers, but for roundings.

    Args:
        folder: of the bundle.
        name: as the report calls it; default the model's.

    Raises:
        BundleError: no valid bundle there.
        ExportError: its graph does not run here.
    """

    kind = "bundle"

    def __init__(self, folder: Path, name: str | None = None) -> None:
        opened = bundle.load(folder)
        manifest = opened.manifest
        precision = next(p for p in _ORDER if p in manifest.precisions and can_run(p))
        engine, self._run = open_engine(precision, opened.graph(precision), threads=0)
        self._tokenizer = DocumentTokenizer(opened.path(TOKENIZER), manifest.max_tokens)
        self._prompt = manifest.prompts.get(manifest.default_prompt or "", "")
        self._pad = manifest.pad_token_id
        self._batch_tokens = _CUDA_BATCH_TOKENS if precision == "packed" else _BATCH_TOKENS
        self.name = name or manifest.name
        self.revision = f"bundle-{manifest.revision}-{precision}-{engine}"
        self.details = {
            "model": manifest.name,
            "revision": manifest.revision[:12],
            "window": f"{manifest.max_tokens} tokens",
            "arithmetic": f"{precision}, {engine}",
        }

    def encode(self, texts: Sequence[str], reading: Reading) -> Vectors:
        """Unit vectors, float32 ``[texts, dimensions]``."""
        return document_vectors(
            read(self._tokenizer, texts, self._prompt, first=reading == "first"),
            lambda ids, mask: self._run(named(ids, mask)),
            pad_token_id=self._pad,
            batch_tokens=self._batch_tokens,
        )
