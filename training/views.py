"""Two views of one document, by the objective's name, and the windows that they fill.

Every view is a pure function of the document's sentences, a random generator and the settings. A
view is a list of pieces. Each piece is an array of token ids without special tokens. In views made
of sentences, each piece is a sentence.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from transformers import PreTrainedTokenizerBase

from training.settings import ObjectiveSettings, ViewName
from training.tokens import TokenCache

# Types of the views and of their input.

T = TypeVar("T")
Ids = npt.NDArray[np.integer[Any]]
Document = Sequence[Ids]
View = list[Ids]
Pair = tuple[View, View | None]


@dataclass(frozen=True)
class ViewContext:
    """What the views need in addition to the document.

    Attributes:
        objective: the settings.
        window: longest view in tokens, special tokens not counted.
        mask_id: id of the mask token; -1 where the vocabulary has none.
        word_starts: bool ``[vocabulary]``, true for tokens that begin a word.
    """

    objective: ObjectiveSettings
    window: int
    mask_id: int
    word_starts: npt.NDArray[np.bool_]


ViewFunction = Callable[[Document, np.random.Generator, ViewContext], Pair]
"""Draws two views of a document. The same generator state gives the same views."""


def tokens_of(sentences: Sequence[Ids]) -> Ids:
    """All ids of some sentences in one array."""
    return np.concatenate(sentences)


def simcse(document: Document, rng: np.random.Generator, context: ViewContext) -> Pair:
    """The same text twice. The views differ only by the encoder's dropout.

    Gao et al. 2021, "SimCSE", section 3; the baseline of the DocSplit paper's section 3.2, which
    calls it "SimCSE-long" on whole documents.
    """
    return list(document), list(document)


def mlm(document: Document, rng: np.random.Generator, context: ViewContext) -> Pair:
    """The whole document, for masked language modelling without contrast.

    Devlin et al. 2019, "BERT", section 3.1; the baseline of the contrastive report's section 4.
    """
    return list(document), None


def docsplit(document: Document, rng: np.random.Generator, context: ViewContext) -> Pair:
    """The two halves of ``halves``."""
    return halves(document, rng)


def halves(sentences: Sequence[T], rng: np.random.Generator) -> tuple[list[T], list[T]]:
    """Assign each sentence to either half with probability one half. The halves keep the order.

    SimLTE / DocSplit, section 2.2. A split with an empty half is drawn again, so the result is
    uniform over all splits into two non-empty sets.

    Raises:
        ValueError: there are fewer than two sentences.
    """
    if len(sentences) < 2:
        raise ValueError("a document of one sentence has no two halves")
    while True:
        first = rng.random(len(sentences)) < 0.5
        if first.any() and not first.all():
            break
    return (
        [s for s, chosen in zip(sentences, first, strict=True) if chosen],
        [s for s, chosen in zip(sentences, first, strict=True) if not chosen],
    )


def coco(document: Document, rng: np.random.Generator, context: ViewContext) -> Pair:
    """Two different random sentences of the document.

    This is the unsupervised pretraining of COCO-DR (Yu et al. 2022) as the LA(SER)^3 paper
    describes it under "Baselines" in section 4.

    Raises:
        ValueError: the document has fewer than two sentences.
    """
    if len(document) < 2:
        raise ValueError("a document of one sentence has no two sentences")
    first, second = rng.choice(len(document), size=2, replace=False)
    return [document[first]], [document[second]]


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


# Spans of a document and masked copies of them.
#
# The contrastive report, section 4 ("View Selection"). Its negatives are the other spans of the
# batch.


def spans(document: Document, rng: np.random.Generator, context: ViewContext) -> Pair:
    """Two neighbouring spans of ``span_tokens`` each, at a random place.

    A document shorter than two spans gives two neighbouring halves.
    """
    first, second = _neighbours(document, rng, context)
    return [first], [second]


def slices(document: Document, rng: np.random.Generator, context: ViewContext) -> Pair:
    """One span, with words masked twice independently."""
    ids = tokens_of(document)
    length = min(context.objective.span_tokens, len(ids))
    start = int(rng.integers(len(ids) - length + 1))
    span = ids[start : start + length]
    return [mask_words(span, rng, context)], [mask_words(span, rng, context)]


def spans_and_slices(document: Document, rng: np.random.Generator, context: ViewContext) -> Pair:
    """Two neighbouring spans, with words of each masked."""
    first, second = _neighbours(document, rng, context)
    return [mask_words(first, rng, context)], [mask_words(second, rng, context)]


def _neighbours(
    document: Document, rng: np.random.Generator, context: ViewContext
) -> tuple[Ids, Ids]:
    ids = tokens_of(document)
    length = min(context.objective.span_tokens, len(ids) // 2)
    start = int(rng.integers(len(ids) - 2 * length + 1))
    middle = start + length
    return ids[start:middle], ids[middle : middle + length]


def laser_self(document: Document, rng: np.random.Generator, context: ViewContext) -> Pair:
    """A sentence and the same sentence repeated m times.

    LA(SER)^3, section 3, "Self-reference". Section 5.1 ablates the choice of the anchor, 5.2 m.
    """
    anchor = _anchor(document, rng, context)
    sentence = document[anchor]
    return [sentence], elongate(sentence, rng, context)


def laser_intra(document: Document, rng: np.random.Generator, context: ViewContext) -> Pair:
    """A sentence repeated m times, and the rest of its document.

    LA(SER)^3, section 3, "Intra-reference": the anchor is elongated, not its positive.

    Raises:
        ValueError: the document has fewer than two sentences.
    """
    if len(document) < 2:
        raise ValueError("a document of one sentence has no other sentences")
    anchor = _anchor(document, rng, context)
    rest = [s for i, s in enumerate(document) if i != anchor]
    return elongate(document[anchor], rng, context), rest


def laser_window(document: Document, rng: np.random.Generator, context: ViewContext) -> Pair:
    """A passage and a window of its endless repetition.

    This is self-reference for a server that reads by windows, which LA(SER)^3 does not cover. The
    window starts and ends anywhere in a copy. The passage starts at the beginning of a word and has
    from 2 tokens to the length of the window. Every order of magnitude is equally likely, so short
    questions are as frequent as paragraphs.
    """
    text = tokens_of(document)
    most = min(len(text), context.window)
    length = min(most, round(2 * (most / 2) ** rng.random()))
    starts = np.flatnonzero(context.word_starts[text[: len(text) - length + 1]])
    start = int(rng.choice(starts)) if len(starts) else 0
    passage = text[start : start + length]
    phase = int(rng.integers(length))
    end = phase + int(rng.integers(length, context.window + 1))
    return [passage], [np.resize(passage, end)[phase:]]


def elongate(sentence: Ids, rng: np.random.Generator, context: ViewContext) -> View:
    """``sentence`` copied m times. m is fixed, or random from 1 to the most that a window holds.

    LA(SER)^3, eq. 1 and section 4: "if a sentence has 10 tokens excluding [cls], we sample a random
    integer from [1,25]" at a window of 256. A fixed m is reduced to the most that the window holds.
    A sentence longer than the window does not change.
    """
    most = max(1, context.window // len(sentence))
    fixed = context.objective.elongation
    times = min(fixed, most) if fixed else int(rng.integers(1, most + 1))
    return [sentence] * times


def _anchor(document: Document, rng: np.random.Generator, context: ViewContext) -> int:
    if context.objective.anchor == "first":
        return 0
    return int(rng.integers(len(document)))


class Mixture:
    """Views of one of several kinds, chosen at random for each document of a batch.

    All documents of a batch remain negatives of each other, independent of the kind.

    Args:
        view: the first kind.
        others: the other kinds.
        share: probability of one of ``others``, each of which is as likely.
    """

    def __init__(self, view: ViewFunction, others: Sequence[ViewFunction], share: float) -> None:
        self._view, self._others, self._share = view, others, share

    def __call__(self, document: Document, rng: np.random.Generator, context: ViewContext) -> Pair:
        """Views of one document."""
        drawn = rng.random() / self._share
        view = self._others[int(drawn * len(self._others))] if drawn < 1 else self._view
        return view(document, rng, context)


# the views of a single document; linked documents' are in training.links
VIEWS: dict[ViewName, ViewFunction] = {
    "docsplit": docsplit,
    "simcse": simcse,
    "span": spans,
    "slice": slices,
    "span+slice": spans_and_slices,
    "laser-self": laser_self,
    "laser-intra": laser_intra,
    "laser-window": laser_window,
    "coco": coco,
    "mlm": mlm,
}


def view_of(objective: ObjectiveSettings) -> ViewFunction | None:
    """The function that draws views of single documents; None if all views are of linked ones."""
    kinds = [VIEWS[name] for name in objective.mix]
    if objective.view != "links":
        kinds = [VIEWS[objective.view], *kinds]
    if len(kinds) < 2:
        return kinds[0] if kinds else None
    if objective.view == "links":
        # the share of documents without links is settled before one of these kinds is drawn
        return Mixture(kinds[0], kinds[1:], 1 - 1 / len(kinds))
    return Mixture(kinds[0], kinds[1:], objective.mix_share)


@dataclass(frozen=True)
class Drawn:
    """The views of a document.

    Attributes:
        pair: its two views.
        partner: number of the document that the second view is from.
        negatives: further documents by number, each with a view that is a negative.
    """

    pair: Pair
    partner: int
    negatives: Sequence[tuple[int, View]] = ()


Drawer = Callable[[int, np.random.Generator], Drawn]
"""Draws the views of a document of the cache. The same generator state gives the same views."""


class OwnViews:
    """Both views are from the document itself."""

    def __init__(self, cache: TokenCache, view: ViewFunction, context: ViewContext) -> None:
        """Draw by ``view`` from the documents of ``cache``."""
        self._cache, self._view, self._context = cache, view, context

    def __call__(self, document: int, rng: np.random.Generator) -> Drawn:
        """The views of one document."""
        return Drawn(self._view(self._cache.sentences(document), rng, self._context), document)


def pack_windows(view: View, window: int, most: int) -> list[Ids]:
    """Pack a view's pieces into at most ``most`` windows of at most ``window`` tokens.

    A window ends before a sentence that no longer fits. A sentence longer than a window is cut. If
    ``most`` is 1, the tokens fill the only window completely.

    Args:
        view: pieces of token ids, none empty.
        window: tokens of a window, special tokens not counted.
        most: maximum number of windows.

    Returns:
        1 to ``most`` arrays of 1 to ``window`` ids.
    """
    if most == 1:
        return [_head(view, window)]
    windows: list[Ids] = []
    current: list[Ids] = []
    room = window
    for piece in view:
        rest = piece
        while len(rest):
            if len(rest) > room and current:
                windows.append(np.concatenate(current))
                current, room = [], window
            current.append(rest[:room])
            room -= len(current[-1])
            rest = rest[len(current[-1]) :]
        if len(windows) >= most:
            return windows[:most]
    if current:
        windows.append(np.concatenate(current))
    return windows[:most]


def _head(view: View, window: int) -> Ids:
    pieces, room = [], window
    for piece in view:
        pieces.append(piece[:room])
        room -= len(pieces[-1])
        if room == 0:
            break
    return np.concatenate(pieces)
