"""LA(SER)^3: a text and its elongation, a sentence and the rest of its document."""

from __future__ import annotations

import numpy as np

from training.views.types import Document, Ids, Pair, View, ViewContext, tokens_of


def laser_self(document: Document, rng: np.random.Generator, context: ViewContext) -> Pair:
    """A sentence against itself repeated m times.

    LA(SER)^3, section 3, "Self-reference"; the choice of the anchor is ablated in 5.1, m in 5.2.
    """
    anchor = _anchor(document, rng, context)
    sentence = document[anchor]
    return [sentence], elongate(sentence, rng, context)


def laser_intra(document: Document, rng: np.random.Generator, context: ViewContext) -> Pair:
    """A sentence repeated m times against the rest of its document.

    LA(SER)^3, section 3, "Intra-reference": the anchor is elongated, not its positive.

    Raises:
        ValueError: fewer than two sentences.
    """
    if len(document) < 2:
        raise ValueError("a document of one sentence has no rest")
    anchor = _anchor(document, rng, context)
    rest = [s for i, s in enumerate(document) if i != anchor]
    return elongate(document[anchor], rng, context), rest


def laser_window(document: Document, rng: np.random.Generator, context: ViewContext) -> Pair:
    """A passage against a window of its endless repetition.

    Self-reference as a server that reads by windows meets it, which LA(SER)^3 does not cover: the
    window starts and ends anywhere in a copy. The passage starts at the beginning of a word and has
    from 2 tokens to what the window holds, every order of magnitude alike, so that short questions
    are drawn as often as paragraphs.
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
    """``sentence`` copied m times, m drawn from 1 to what the window holds, or fixed.

    LA(SER)^3, eq. 1 and section 4: "if a sentence has 10 tokens excluding [cls], we sample a random
    integer from [1,25]" at a window of 256. A fixed m is lowered to what the window holds; a
    sentence longer than the window stays as it is.
    """
    most = max(1, context.window // len(sentence))
    fixed = context.objective.elongation
    times = min(fixed, most) if fixed else int(rng.integers(1, most + 1))
    return [sentence] * times


def _anchor(document: Document, rng: np.random.Generator, context: ViewContext) -> int:
    if context.objective.anchor == "first":
        return 0
    return int(rng.integers(len(document)))
