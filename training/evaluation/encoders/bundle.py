"""Run the graph of a bundle on this machine."""

from collections.abc import Sequence
from pathlib import Path

from docsplit.bundles import format as bundle
from docsplit.bundles.manifest import TOKENIZER
from docsplit.engines.choice import ArithmeticWish, choose, detect
from docsplit.windowing.documents import document_vectors, read
from docsplit.windowing.tokens import DocumentTokenizer
from docsplit.windowing.windows import Weighing
from export.engines import named, open_chosen
from training.evaluation.encoders.interface import Reading, Vectors

_BATCH_TOKENS = 2048
_CUDA_BATCH_TOKENS = 32_768


class BundleEncoder:
    """The vectors that a service with this bundle returns, up to rounding.

    Args:
        folder: the folder of the bundle.
        name: its name in the report; default the model's name.
        precision: as the service's setting; ``auto`` is what the service chooses here.

    Raises:
        BundleError: the folder holds no valid bundle, or it cannot compute in this precision.
        ExportError: the graph does not run on this machine.
    """

    kind = "bundle"

    def __init__(
        self, folder: Path, name: str | None = None, precision: ArithmeticWish = "auto"
    ) -> None:
        opened = bundle.load(folder)
        manifest = opened.manifest
        processor = detect()
        choice = choose("auto", precision, processor, manifest.precisions)
        graph = opened.graph(choice.graph)
        engine, self._run = open_chosen(choice, graph, threads=processor.cores)
        self._tokenizer = DocumentTokenizer(opened.path(TOKENIZER), manifest.max_tokens)
        self._prompt = manifest.prompts.get(manifest.default_prompt or "", "")
        self._pad = manifest.pad_token_id
        weights = manifest.window_weights
        self._weighing = Weighing(weights.unit, weights.first)
        cuda = choice.engine == "onnx-cuda"
        self._batch_tokens = _CUDA_BATCH_TOKENS if cuda else _BATCH_TOKENS
        self.name = name or manifest.name
        arithmetic = f"{choice.arithmetic}, {choice.graph} graph, {engine}"
        self.revision = f"bundle-{manifest.revision}-{arithmetic}"
        self.details = {
            "model": manifest.name,
            "revision": manifest.revision[:12],
            "window": f"{manifest.max_tokens} tokens",
            "arithmetic": arithmetic,
        }

    def encode(self, texts: Sequence[str], reading: Reading) -> Vectors:
        """Unit vectors, float32 ``[texts, dimensions]``."""
        return document_vectors(
            read(
                self._tokenizer,
                texts,
                self._prompt,
                first=reading == "first",
                weighing=self._weighing,
            ),
            lambda ids, mask: self._run(named(ids, mask)),
            pad_token_id=self._pad,
            batch_tokens=self._batch_tokens,
        )
