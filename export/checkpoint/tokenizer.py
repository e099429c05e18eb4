"""The bundle's tokenizer: the source's tokenizer without truncation and padding."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from docsplit.bundles.manifest import TOKENIZER
from docsplit.windowing.batches import pad
from docsplit.windowing.tokens import DocumentTokenizer
from export.checkpoint.source import Checkpoint, Source
from export.errors import ExportError

# of a batch; a long model takes gigabytes for eight of its windows at once
PADDED_TOKENS = 8_192


def write_tokenizer(source: Checkpoint, folder: Path, texts: list[str]) -> Tokenizer:
    """Write ``tokenizer.json`` and check on ``texts`` that it gives the same ids as the source.

    The service truncates and pads. A bundle that truncated would cut texts silently.

    Raises:
        ExportError: the ids differ.
    """
    path = folder / TOKENIZER
    tokenizer = Tokenizer.from_str(source.tokenizer.backend_tokenizer.to_str())
    tokenizer.no_truncation()
    tokenizer.no_padding()
    # the tokenizer's own save raises no OSError on a full disk
    path.write_text(tokenizer.to_str(pretty=True), encoding="utf-8")
    written = Tokenizer.from_file(str(path))
    expected = source.tokenizer(texts, truncation=False, padding=False, verbose=False)["input_ids"]
    for text, ids, encoding in zip(texts, expected, written.encode_batch(texts), strict=True):
        if encoding.ids != ids:
            raise ExportError(
                f"{source.name}: tokenizer.json does not reproduce the source's ids, "
                f"for instance of {text[:60]!r}"
            )
    return written


def check_prompts(source: Source, tokenizer: Tokenizer) -> None:
    """Refuse a prompt that fills a window, as the service does when it starts.

    Raises:
        ExportError: the message names the prompt.
    """
    try:
        counted = DocumentTokenizer(tokenizer, source.max_tokens)
    except ValueError as error:
        raise ExportError(f"{source.name}: {error}; give more --max-tokens") from error
    for name, text in source.prompts.items():
        if counted.count(text) >= counted.capacity:
            raise ExportError(
                f"{source.name}: the prompt {name!r} of {counted.count(text)} tokens leaves no "
                f"room for text in a window of {source.max_tokens}; give more --max-tokens"
            )


def batches(
    tokenizer: Tokenizer, texts: list[str], *, max_tokens: int, pad_token_id: int, size: int
) -> list[dict[str, np.ndarray]]:
    """Model inputs of ``texts`` in order, cut to ``max_tokens``.

    A batch has at most ``size`` texts, and fewer if it would exceed ``PADDED_TOKENS``.

    Returns:
        ``input_ids`` and ``attention_mask``, int64 ``[batch, tokens]``, padded to the longest.
    """
    cut = Tokenizer.from_str(tokenizer.to_str())
    cut.enable_truncation(max_tokens)
    cut.no_padding()
    rows = [np.array(encoding.ids) for encoding in cut.encode_batch(texts)]
    return padded(rows, pad_token_id=pad_token_id, size=size)


def padded(
    rows: Sequence[NDArray[np.integer[Any]]], *, pad_token_id: int, size: int
) -> list[dict[str, np.ndarray]]:
    """Model inputs of rows of token ids, in order; see ``batches``."""
    groups: list[list[NDArray[np.integer[Any]]]] = []
    longest = 0
    for row in rows:
        longest = max(longest, len(row))
        group = groups[-1] if groups else []
        if not group or len(group) == size or longest * (len(group) + 1) > PADDED_TOKENS:
            longest = len(row)
            groups.append([row])
        else:
            group.append(row)
    names = ("input_ids", "attention_mask")
    return [dict(zip(names, pad(group, pad_token_id), strict=True)) for group in groups]
