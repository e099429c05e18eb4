"""From whole documents to vectors: tokenise, cut, look up, compute, pool."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from docsplit.windowing.pooling import UNKNOWN, Vectors, pool
from docsplit.windowing.tokens import DocumentTokenizer, Side
from docsplit.windowing.windows import BY_TOKENS, Ids, Weighing, Window, split
from service.embedding.batching.batcher import Batcher
from service.embedding.cache import layers
from service.embedding.cache.layers import SHARED, Cache, Source, Tenants, window_key
from service.embedding.charges import charged
from service.embedding.tokenising import Steps, Tokenising, in_succession
from service.errors import EmptyError, RequestError, TooLargeError
from service.tracing.stages import Stage


class UnusableInputError(RequestError):
    """A text that the service cannot embed.

    Attributes:
        index: position of the text among the inputs.
        reason: rest of the message, after the name of the input.
    """

    def __init__(self, index: int, reason: str, code: str) -> None:
        super().__init__(f"input {index} {reason}", "input", code=code)
        self.index = index
        self.reason = reason

    def __str__(self) -> str:
        return f"input {self.index} {self.reason}"


class EmptyInputError(UnusableInputError, EmptyError):
    """A text without any token, or whose vector is all zeros."""

    def __init__(self, index: int, reason: str = "is empty: its text makes no token") -> None:
        super().__init__(index, reason, "empty_input")


class TooLongError(UnusableInputError, TooLargeError):
    """A document over the limit. Tokenising stops there, so its full size is unknown."""

    def __init__(self, index: int, limit: int) -> None:
        super().__init__(
            index,
            f"has more than {limit} tokens, which is the limit: split it, or set truncate=true to "
            "embed only one window of it",
            "document_too_long",
        )


@dataclass(slots=True)
class DocumentWindow(Window):
    """A window and its vector.

    Attributes:
        vector: float32 ``[dimensions]``, unit length; None until computed.
    """

    vector: Vectors | None = None
    source: Source | None = None


@dataclass(slots=True)
class Document:
    """A document's windows and vector.

    Attributes:
        characters: length of the text in code points.
        tokens: tokens of the whole text, without special and prompt tokens. For a truncated text
        over the limit: the tokens counted up to the limit.
        unknown: how many of them stand for what the vocabulary lacks.
        used: tokens in the windows; less than ``tokens`` only after ``truncate``.
        computed: tokens that the model reads for it, with special and prompt tokens.
        pooled: the first result of ``vector``.
    """

    characters: int
    tokens: int
    windows: list[DocumentWindow]
    unknown: int = 0
    used: int = field(init=False)
    computed: int = field(init=False)
    _pooled: Vectors | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.used = sum(window.tokens for window in self.windows)
        self.computed = sum(len(window.ids) for window in self.windows)

    @property
    def truncated(self) -> bool:
        return self.used < self.tokens

    @property
    def cached(self) -> int:
        return sum(window.source is not Source.ENGINE for window in self.windows)

    def matrix(self) -> Vectors:
        """Vectors of the windows, ``[windows, dimensions]``."""
        return np.stack([w.vector for w in self.windows if w.vector is not None])

    def vector(self) -> Vectors:
        """Weighted mean of the windows, not renormalised; computed once."""
        # most texts have one window, and need no array of windows
        if self._pooled is None and len(self.windows) == 1 and self.windows[0].vector is not None:
            self._pooled = self.windows[0].vector.copy()
        if self._pooled is None:
            self._pooled = pool(self.matrix(), [window.weight for window in self.windows])
        return self._pooled


@dataclass(slots=True)
class Timing:
    """Seconds spent in each stage.

    Attributes:
        looking: until the caches have answered, or another request has computed the vectors.
    """

    tokenising: float = 0.0
    looking: float = 0.0
    queued: float = 0.0
    computing: float = 0.0
    pooling: float = 0.0


@dataclass(slots=True)
class Embedded:
    """The documents of one request, in its order.

    Attributes:
        documents: documents of the texts that are not refused.
        refused: errors of refused texts, by position.
        query_truncated: whether the query of a ranking was cut.
    """

    documents: list[Document]
    timing: Timing = field(default_factory=Timing)
    refused: dict[int, UnusableInputError] = field(default_factory=dict)
    query_truncated: bool = False

    @property
    def windows(self) -> list[DocumentWindow]:
        """The windows of all documents."""
        return [window for document in self.documents for window in document.windows]

    @property
    def computed(self) -> int:
        """Tokens that the model reads for all documents."""
        return sum(document.computed for document in self.documents)

    @property
    def cached(self) -> int:
        """Windows whose vectors were not computed for this request."""
        return sum(document.cached for document in self.documents)

    @property
    def truncated(self) -> bool:
        """Whether a text was cut."""
        return self.query_truncated or any(document.truncated for document in self.documents)


@dataclass(slots=True)
class FoundVectors:
    """Vectors of windows, in the order of the request.

    Attributes:
        vectors: float32 ``[dimensions]``, unit length, one per window.
        sources: origin of each vector.
        looking: seconds spent reading the cache.
        queued: seconds that the windows computed for this call waited.
        computing: seconds spent computing them.
    """

    vectors: list[Vectors]
    sources: list[Source]
    looking: float = 0.0
    queued: float = 0.0
    computing: float = 0.0


class CachedVectors:
    """Vectors of windows from the cache; the batcher computes those that are missing.

    Args:
        tenants: decides which clients share entries of the cache.
    """

    def __init__(self, cache: Cache, batcher: Batcher, tenants: Tenants = SHARED) -> None:
        self._cache = cache
        self._batcher = batcher
        self._tenants = tenants

    @property
    def queued_tokens(self) -> int:
        """Tokens waiting for the engine."""
        return self._batcher.queued_tokens

    async def get(
        self, keys: Sequence[bytes], windows: Sequence[Ids], deadline: float
    ) -> FoundVectors:
        """Vectors of windows.

        Args:
            keys: ``window_key`` of each window; may repeat.
            windows: model inputs, special tokens included.
            deadline: on ``time.monotonic``'s clock.

        Raises:
            OverloadedError, DeadlineError, EngineFailedError: from the batcher.
        """
        names = self._tenants.own(keys)
        ids = dict(zip(names, windows, strict=True))
        result = FoundVectors([], [])

        async def compute(missing: Sequence[bytes]) -> Vectors:
            lookup.stop()

            # keep the vectors of a failed request, so that a repetition need not compute them
            def keep(positions: Sequence[int], vectors: Vectors) -> None:
                self._cache.keep([missing[position] for position in positions], vectors)

            work = [ids[key] for key in missing]
            computed = await self._batcher.compute(work, deadline, keep)
            result.queued += computed.queued
            result.computing += computed.computing
            return computed.vectors

        with Stage("cache") as lookup:
            held = await self._cache.get(names, compute, lasting=layers.is_stored())
            for name in names:
                vector, source = held[name]
                result.vectors.append(vector)
                result.sources.append(source)
            counts = {f"docsplit.cache.{s}": result.sources.count(s) for s in Source}
            lookup.note(counts)
        result.looking = lookup.seconds
        return result


class Embedder:
    """Embeds whole documents.

    Args:
        vectors: finds or computes the windows' vectors.
        max_document_tokens: longer documents are refused unless they are truncated.
        workers: number of tokenising threads.
        weighing: of the bundle: gives the windows of a document their weights.
    """

    def __init__(
        self,
        tokenizer: DocumentTokenizer,
        vectors: CachedVectors,
        max_document_tokens: int,
        workers: int = 2,
        weighing: Weighing = BY_TOKENS,
    ) -> None:
        self._tokenizer = tokenizer
        self._weighing = weighing
        self._vectors = vectors
        self._max_tokens = max_document_tokens
        self.tokenising = Tokenising(workers)

    @property
    def queued_tokens(self) -> int:
        """Tokens waiting for the engine."""
        return self._vectors.queued_tokens

    async def embed(
        self,
        texts: Sequence[str],
        deadline: float,
        *,
        prompt: str = "",
        truncate: bool = False,
        side: Side = "right",
        vectors: CachedVectors | None = None,
        refuse: bool = False,
    ) -> Embedded:
        """Vectors of whole documents.

        Args:
            texts: of any length up to the limit.
            deadline: on ``time.monotonic``'s clock.
            prompt: text before every window.
            truncate: keep one window of a longer document, and count the removed tokens.
            side: side to cut off: ``right`` keeps the start, ``left`` keeps the end.
            vectors: finds or computes the windows' vectors instead of the embedder's own source.
            refuse: embed the other texts if one is empty, unknown or too long.

        Raises:
            EmptyInputError: a text has no tokens or a vector of zeros, unless ``refuse``.
            TooLongError: a document exceeds the limit, unless ``refuse``.
            OverloadedError, DeadlineError, EngineFailedError: from the batcher.
        """
        result = Embedded([])
        with Stage("tokenise") as stage:
            works = (
                (text, self._document(index, text, prompt, truncate, side, refuse))
                for index, text in enumerate(texts)
            )
            for index, made in enumerate(await self.tokenising.carry_out(in_succession(works))):
                if isinstance(made, Document):
                    result.documents.append(made)
                else:
                    result.refused[index] = made
            stage.note(
                {
                    "docsplit.documents": len(texts),
                    "docsplit.windows": len(result.windows),
                    "docsplit.tokens": result.computed,
                }
            )
        result.timing.tokenising = stage.seconds
        if result.documents:
            await self._fill(result, vectors or self._vectors, deadline)
        with Stage("pool") as stage:
            found, result.documents = iter(result.documents), []
            for index in range(len(texts)):
                if index in result.refused:
                    continue
                document = next(found)
                if document.vector().any():
                    result.documents.append(document)
                elif refuse:
                    result.refused[index] = EmptyInputError(index, UNKNOWN)
                else:
                    raise EmptyInputError(index, UNKNOWN)
        result.timing.pooling = stage.seconds
        return result

    def close(self) -> None:
        """Stop the tokenising threads."""
        self.tokenising.close()

    def _document(
        self, index: int, text: str, prompt: str, truncate: bool, side: Side, refuse: bool
    ) -> Steps[Document | UnusableInputError]:
        try:
            return (yield from self._split(index, text, prompt, truncate, side))
        except UnusableInputError as error:
            if not refuse:
                raise
            return error

    def _split(
        self, index: int, text: str, prompt: str, truncate: bool, side: Side
    ) -> Steps[Document]:
        tokens = yield from self._tokenizer.encoding(text, prompt, self._max_tokens, side)
        total = len(tokens.ids) - tokens.prompt
        if total == 0:
            raise EmptyInputError(index)
        if total > self._max_tokens and not truncate:
            raise TooLongError(index, self._max_tokens)
        keep = side if truncate else None
        windows = split(self._tokenizer, text, tokens, keep, self._weighing)
        made = [DocumentWindow(w.start, w.end, w.tokens, w.ids, w.weight) for w in windows]
        return Document(len(text), total, made, self._tokenizer.unknown(tokens))

    async def _fill(self, result: Embedded, vectors: CachedVectors, deadline: float) -> None:
        windows = result.windows
        keys = [window_key(window.ids) for window in windows]
        with charged(result.computed):
            found = await vectors.get(keys, [window.ids for window in windows], deadline)
        result.timing.looking += found.looking
        result.timing.queued += found.queued
        result.timing.computing += found.computing
        for window, vector, source in zip(windows, found.vectors, found.sources, strict=True):
            window.vector, window.source = vector, source
