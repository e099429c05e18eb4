"""The vectors of many documents, in batches with little padding."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from docsplit.windowing.pooling import Vectors, normalise, pool
from docsplit.windowing.tokens import DocumentTokenizer, Side
from docsplit.windowing.windows import BY_TOKENS, Ids, Weighing, Window, split

Wide = NDArray[np.int64]


def batches(lengths: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """Positions of rows in batches, by rising length, so that there is little padding."""
    batch: list[int] = []
    for number in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        if batch and (len(batch) + 1) * lengths[number] > batch_tokens:
            yield batch
            batch = []
        batch.append(number)
    if batch:
        yield batch


def pad(
    rows: Sequence[NDArray[np.integer[Any]]], pad_token_id: int, width: int = 0
) -> tuple[Wide, Wide]:
    """Join rows of ids into one matrix and its mask: 1 for tokens, 0 for padding.

    Args:
        rows: ``[tokens]`` each.
        pad_token_id: fills the shorter rows.
        width: smallest number of columns.

    Returns:
        Two int64 matrices ``[rows, columns]``.
    """
    lengths = np.array([len(row) for row in rows])
    mask = np.arange(max(width, lengths.max())) < lengths[:, None]
    ids = np.full(mask.shape, pad_token_id, dtype=np.int64)
    ids[mask] = np.concatenate(rows)
    return ids, mask.astype(np.int64)


# ids and mask, [batch, tokens], to vectors, [batch, dimensions]
Encode = Callable[[Wide, Wide], Vectors]
Advance = Callable[[float], None]


def read(
    tokenizer: DocumentTokenizer,
    texts: Sequence[str],
    prompt: str = "",
    *,
    first: bool = False,
    weighing: Weighing = BY_TOKENS,
) -> list[list[Window]]:
    """The windows of documents.

    Args:
        texts: of any length.
        prompt: text before every window.
        first: make only the first window of each document, filled.
        weighing: gives the windows their weights.
    """
    keep: Side | None = "right" if first else None
    return [
        split(tokenizer, text, tokenizer.encode(text, prompt), keep, weighing) for text in texts
    ]


def window_vectors(
    documents: Sequence[Sequence[Window]],
    encode: Encode,
    *,
    pad_token_id: int,
    batch_tokens: int = 2048,
    workers: int = 1,
    advance: Advance = lambda share: None,
) -> list[Vectors]:
    """Vectors of the windows of each document, float32 ``[windows, dimensions]``.

    Equal windows are encoded once.

    Args:
        documents: windows of each document.
        encode: int64 ids and mask ``[batch, tokens]`` → unit vectors ``[batch, dimensions]``.
        pad_token_id: fills rows that are shorter than the longest row of a batch.
        batch_tokens: most padded tokens in a batch; a longer window gets its own batch.
        workers: batches that are encoded at once, each in a thread.
        advance: called after each batch with the share of the tokens that are encoded.

    Raises:
        ValueError: there are no documents.
    """
    numbers: dict[bytes, int] = {}
    rows: list[Ids] = []
    places = []
    for document in documents:
        for window in document:
            if numbers.setdefault(window.ids.tobytes(), len(rows)) == len(rows):
                rows.append(window.ids)
        places.append([numbers[window.ids.tobytes()] for window in document])
    if not rows:
        raise ValueError("no documents to encode")
    every, done = sum(map(len, rows)), 0
    matrix: Vectors | None = None
    order = list(batches(list(map(len, rows)), batch_tokens))
    with ThreadPoolExecutor(workers) as threads:
        encoded = threads.map(
            lambda batch: encode(*pad([rows[i] for i in batch], pad_token_id)), order
        )
        for batch, vectors in zip(order, encoded, strict=True):
            if matrix is None:
                matrix = np.empty((len(rows), vectors.shape[1]), dtype=np.float32)
            matrix[batch] = vectors
            done += sum(len(rows[i]) for i in batch)
            advance(done / every)
    assert matrix is not None  # noqa: S101 - there is a batch
    return [matrix[own] for own in places]


def document_vectors(
    documents: Sequence[Sequence[Window]],
    encode: Encode,
    *,
    pad_token_id: int,
    batch_tokens: int = 2048,
    advance: Advance = lambda share: None,
) -> Vectors:
    """Unit vectors of documents, float32 ``[documents, dimensions]``.

    Values from ``encode`` that are not finite stay so. Arguments and errors: ``window_vectors``.
    """
    matrices = window_vectors(
        documents,
        encode,
        pad_token_id=pad_token_id,
        batch_tokens=batch_tokens,
        advance=advance,
    )
    with np.errstate(invalid="ignore"):
        return normalise(
            np.stack(
                [
                    pool(matrix, [window.weight for window in document])
                    for matrix, document in zip(matrices, documents, strict=True)
                ]
            )
        )
