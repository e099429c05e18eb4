"""Masking whole words."""

import json

import numpy as np
import numpy.typing as npt
from transformers import PreTrainedTokenizerBase

from training.views.types import Ids, ViewContext


def mask_words(ids: Ids, rng: np.random.Generator, context: ViewContext) -> Ids:
    """Replace words by the mask token. Consecutive masked words become one mask.

    The contrastive report, section 4: "I went to the bakery" becomes "I <MASK> the bakery". At
    least one word stays.

    Args:
        ids: token ids of a span. Tokens before its first word start count as a word.
        rng: masks each word with probability ``objective.slice_rate``.
        context: mask token and vocabulary.

    Raises:
        ValueError: the vocabulary has no mask token.
    """
    if context.mask_id < 0:
        raise ValueError("the tokenizer has no mask token, which slice views need")
    starts = context.word_starts[ids].copy()
    starts[0] = True
    word = np.cumsum(starts) - 1
    masked = rng.random(word[-1] + 1) < context.objective.slice_rate
    if masked.all():
        masked[rng.integers(len(masked))] = False
    hidden = masked[word]
    run_start = hidden & ~np.concatenate([[False], hidden[:-1]])
    out = np.where(hidden, np.asarray(context.mask_id, dtype=ids.dtype), ids)
    kept: Ids = out[~hidden | run_start]
    return kept


def word_starts(tokenizer: PreTrainedTokenizerBase) -> npt.NDArray[np.bool_]:
    """Whether each token of the vocabulary begins a word, bool ``[vocabulary]``.

    WordPiece marks tokens that continue a word. Byte-level BPE and SentencePiece mark the space
    before a word. In a vocabulary without such marks, every token counts as a word.
    """
    vocabulary = tokenizer.get_vocab()
    size = max(vocabulary.values()) + 1
    starts = np.ones(max(size, len(tokenizer)), dtype=np.bool_)
    model = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    continuing = model.get("continuing_subword_prefix") or ""
    spaced = {mark for mark in ("Ġ", "▁") if any(t.startswith(mark) for t in vocabulary)}
    for token, number in vocabulary.items():
        if continuing:
            starts[number] = not token.startswith(continuing)
        elif spaced:
            starts[number] = token.startswith(tuple(spaced))
    for number in tokenizer.all_special_ids:
        starts[number] = True
    return starts
