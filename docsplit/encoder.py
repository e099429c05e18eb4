"""Vectors of whole documents in this process, without a server."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from docsplit.bundles import format as bundles
from docsplit.bundles.format import DEFAULT_BUNDLE
from docsplit.bundles.manifest import TOKENIZER
from docsplit.engines.build import build
from docsplit.engines.choice import ArithmeticWish, EngineWish, choose, detect
from docsplit.windowing.pooling import UNKNOWN, Vectors, normalise, pool, shorten
from docsplit.windowing.tokens import DocumentTokenizer, Side
from docsplit.windowing.vectors import Advance, window_vectors
from docsplit.windowing.windows import Weighing, Window, split


class EmptyTextError(ValueError):
    """A text without a token or a known word has no vector. The message has its position."""


@dataclass(frozen=True, slots=True)
class Document:
    """A document's vectors.

    Attributes:
        vector: of the whole document, float32 ``[dimensions]``, unit length.
        windows: its windows in order, with their places in the text in code points.
        window_vectors: of the windows, float32 ``[windows, dimensions]``, unit length.
    """

    vector: Vectors
    windows: list[Window]
    window_vectors: Vectors


class Encoder:
    """Embeds whole documents with a bundle: those of the service, up to rounding.

    Args:
        bundle: the folder of the bundle.
        engine: as the service's setting; ``auto`` is what the service chooses here.
        precision: as the service's setting.
        threads: CPU cores to compute on; 0 for all that the process may use.
        language: of the texts, for the ends of sentences: an ISO 639-1 code.

    Attributes:
        manifest: of the bundle.
        choice: the engine and the precision, and why.

    Raises:
        BundleError: the folder holds no valid bundle, or it cannot run here.
    """

    def __init__(
        self,
        bundle: Path | str = DEFAULT_BUNDLE,
        *,
        engine: EngineWish = "auto",
        precision: ArithmeticWish = "auto",
        threads: int = 0,
        language: str = "en",
    ) -> None:
        folder = bundles.load(Path(bundle))
        processor = detect()
        cores = threads or processor.cores
        self.manifest = folder.manifest
        self.choice = choose(engine, precision, processor, self.manifest.precisions)
        self._engine = build(self.choice, folder, cores, cores)
        self._tokenizer = DocumentTokenizer(
            folder.path(TOKENIZER), self.manifest.max_tokens, language
        )
        weights = self.manifest.window_weights
        self._weighing = Weighing(weights.unit, weights.first)

    def windows(
        self, texts: Sequence[str], *, prompt_name: str | None = None, first: bool = False
    ) -> list[list[Window]]:
        """The windows of texts of any length.

        Args:
            texts: documents.
            prompt_name: a prompt of the bundle; default its default prompt.
            first: only the first window of each text, filled.

        Raises:
            EmptyTextError: a text has no token.
            KeyError: the bundle has no such prompt.
        """
        name = prompt_name if prompt_name is not None else self.manifest.default_prompt
        prompt = self.manifest.prompts[name] if name is not None else ""
        found = []
        for number, text in enumerate(texts):
            tokens = self._tokenizer.encode(text, prompt)
            if len(tokens.ids) == tokens.prompt:
                raise EmptyTextError(f"text {number} is empty: it makes no token")
            keep: Side | None = "right" if first else None
            found.append(split(self._tokenizer, text, tokens, keep, self._weighing))
        return found

    def embed(
        self,
        texts: Sequence[str],
        *,
        prompt_name: str | None = None,
        dimensions: int | None = None,
        first: bool = False,
        advance: Advance = lambda share: None,
    ) -> Vectors:
        """Unit vectors of whole documents, float32 ``[texts, dimensions]``.

        Args:
            texts: documents of any length.
            prompt_name: a prompt of the bundle; default its default prompt.
            dimensions: components to keep; default all.
            first: only of the first window of each text, filled.
            advance: called after each batch with the share of the tokens that are computed.

        Raises:
            EmptyTextError: a text has no token, or the model knows none of its words.
            KeyError: the bundle has no such prompt.
            ValueError: the model has fewer dimensions.
        """
        width = dimensions or self.manifest.dimensions
        if not 1 <= width <= self.manifest.dimensions:
            raise ValueError(f"dimensions: this model has {self.manifest.dimensions}")
        documents = self.documents(texts, prompt_name=prompt_name, first=first, advance=advance)
        rows = [document.vector for document in documents]
        for number, row in enumerate(rows):
            if not row.any():
                raise EmptyTextError(f"text {number} {UNKNOWN}")
        wide = np.array(rows, np.float32).reshape(len(rows), self.manifest.dimensions)
        return shorten(wide, width)

    def documents(
        self,
        texts: Sequence[str],
        *,
        prompt_name: str | None = None,
        first: bool = False,
        advance: Advance = lambda share: None,
    ) -> list[Document]:
        """Vectors of documents, and of their windows with their places; as ``embed``, but zeros for
        a document of unknown words."""
        if not texts:
            return []
        documents = self.windows(texts, prompt_name=prompt_name, first=first)
        matrices = window_vectors(
            documents,
            self._engine.run,
            pad_token_id=self.manifest.pad_token_id,
            batch_tokens=self._engine.batch_tokens,
            workers=self._engine.streams,
            advance=advance,
        )
        return [
            Document(normalise(pool(matrix, [w.weight for w in windows])), windows, matrix)
            for windows, matrix in zip(documents, matrices, strict=True)
        ]
