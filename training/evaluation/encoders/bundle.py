"""Run the graph of a bundle on this machine."""

from collections.abc import Sequence
from pathlib import Path

from bundles import format as bundle
from bundles.manifest import TOKENIZER, PrecisionName
from export.checks.engines import can_run, named, open_engine
from training.evaluation.encoders.interface import Reading, Vectors
from windowing.documents import document_vectors, read
from windowing.tokens import DocumentTokenizer

# in the order of the service's preference
_ORDER: tuple[PrecisionName, ...] = ("packed", "int8", "fp16")
_BATCH_TOKENS = 2048
_CUDA_BATCH_TOKENS = 32_768


class BundleEncoder:
    """The vectors that a service with this bundle returns, up to rounding.

    Args:
        folder: the folder of the bundle.
        name: its name in the report; default the model's name.

    Raises:
        BundleError: the folder holds no valid bundle.
        ExportError: the graph does not run on this machine.
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
