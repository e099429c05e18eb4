"""The bundle's tokenizer: the source's own, without truncation and padding."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from export.bundle import TOKENIZER
from export.errors import ExportError
from export.source import Source


def write_tokenizer(source: Source, folder: Path, texts: list[str]) -> Tokenizer:
    """Write ``tokenizer.json`` and check on ``texts`` that it gives the ids the source gives.

    Truncation and padding are left to the service: a bundle that truncated by itself would cut
    texts silently.

    Raises:
        ExportError: ids differ.
    """
    path = folder / TOKENIZER
    tokenizer = Tokenizer.from_str(source.tokenizer.backend_tokenizer.to_str())
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.save(str(path))
    written = Tokenizer.from_file(str(path))
    expected = source.tokenizer(texts, truncation=False, padding=False, verbose=False)["input_ids"]
    for text, ids, encoding in zip(texts, expected, written.encode_batch(texts), strict=True):
        if encoding.ids != ids:
            raise ExportError(
                f"{source.name}: tokenizer.json does not reproduce the source's ids, "
                f"for instance of {text[:60]!r}"
            )
    return written


def batches(
    tokenizer: Tokenizer, texts: list[str], *, max_tokens: int, pad_token_id: int, size: int
) -> list[dict[str, np.ndarray]]:
    """Model inputs of ``texts`` in order, ``size`` at a time, cut to ``max_tokens``.

    Returns:
        ``input_ids`` and ``attention_mask``, int64 ``[batch, tokens]``, padded to the longest.
    """
    cut = Tokenizer.from_str(tokenizer.to_str())
    cut.enable_truncation(max_tokens)
    cut.enable_padding(pad_id=pad_token_id)
    made = []
    for start in range(0, len(texts), size):
        encoded = cut.encode_batch(texts[start : start + size])
        made.append(
            {
                "input_ids": np.array([e.ids for e in encoded], dtype=np.int64),
                "attention_mask": np.array([e.attention_mask for e in encoded], dtype=np.int64),
            }
        )
    return made
