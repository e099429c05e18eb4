"""Whole documents as vectors: consecutive windows and their token-weighted mean."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from export.checks.engines import Encode, Inputs

# padding included, of one call of an engine
BATCH_TOKENS = 2048
_TEXTS_AT_ONCE = 256

Vectors = npt.NDArray[np.float32]
Advance = Callable[[float], None]


@dataclass(frozen=True)
class Windows:
    """All windows of some texts, none left out.

    Attributes:
        rows: ids of each window, int32 ``[tokens]``, special tokens included.
        owner: number of the text of each window, int64 ``[windows]``.
        weight: tokens of the text in each window, float32 ``[windows]``.
        texts: how many there are.
    """

    rows: Sequence[npt.NDArray[np.int32]]
    owner: npt.NDArray[np.int64]
    weight: Vectors
    texts: int


def cut(tokenizer: Tokenizer, texts: Sequence[str], *, max_tokens: int) -> Windows:
    """Cut texts into windows of ``max_tokens``, one after the other without overlap.

    No prompt is put before them.
    """
    cutting = Tokenizer.from_str(tokenizer.to_str())
    cutting.no_padding()
    cutting.enable_truncation(max_tokens)
    rows, owner, weight = [], [], []
    for start in range(0, len(texts), _TEXTS_AT_ONCE):
        encodings = cutting.encode_batch(list(texts[start : start + _TEXTS_AT_ONCE]))
        for number, encoding in enumerate(encodings, start):
            for window in (encoding, *encoding.overflowing):
                rows.append(np.asarray(window.ids, dtype=np.int32))
                owner.append(number)
                # a text without tokens has one window with only special tokens
                weight.append(max(1, window.special_tokens_mask.count(0)))
    return Windows(
        rows, np.asarray(owner, np.int64), np.asarray(weight, dtype=np.float32), len(texts)
    )


def document_vectors(
    windows: Windows, encode: Encode, *, pad_token_id: int, advance: Advance = lambda share: None
) -> Vectors:
    """Unit vectors of the texts, float32 ``[texts, dimensions]``.

    A text's vector is the mean of its windows', weighted by their tokens. What the encoder gives
    that is not finite stays so.

    Args:
        windows: of the texts.
        encode: int64 ``[batch, tokens]`` by name → float32 ``[batch, dimensions]``.
        pad_token_id: fills rows that are shorter than the longest of a batch.
        advance: gets the finished share of the tokens after each batch.
    """
    total: Vectors | None = None
    done, every = 0, sum(map(len, windows.rows))
    for batch in _batches(windows.rows):
        vectors = encode(_padded([windows.rows[i] for i in batch], pad_token_id))
        if total is None:
            total = np.zeros((windows.texts, vectors.shape[1]), dtype=np.float32)
        np.add.at(total, windows.owner[batch], vectors * windows.weight[batch, None])
        done += sum(len(windows.rows[i]) for i in batch)
        advance(done / every)
    if total is None:
        raise ValueError("no windows to encode")
    with np.errstate(invalid="ignore"):
        unit: Vectors = total / np.linalg.norm(total, axis=1, keepdims=True)
    return unit


def _batches(rows: Sequence[npt.NDArray[np.int32]]) -> Iterator[list[int]]:
    """Row numbers by rising length, so that little is padded."""
    batch: list[int] = []
    for number in sorted(range(len(rows)), key=lambda i: len(rows[i])):
        if batch and (len(batch) + 1) * len(rows[number]) > BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(number)
    if batch:
        yield batch


def _padded(rows: Sequence[npt.NDArray[np.int32]], pad_token_id: int) -> Inputs:
    ids = np.full((len(rows), max(map(len, rows))), pad_token_id, dtype=np.int64)
    mask = np.zeros_like(ids)
    for line, row in enumerate(rows):
        ids[line, : len(row)] = row
        mask[line, : len(row)] = 1
    return {"input_ids": ids, "attention_mask": mask}
