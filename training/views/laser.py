"""Views of LA(SER)^3: a text and its elongation, a sentence and the rest of its document."""

import numpy as np

from training.views.types import Document, Ids, Pair, View, ViewContext, tokens_of


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
