"""Attention of the first token by part of speech."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, cast

import numpy as np
import numpy.typing as npt

from docsplit.corpora.sets import AnySet, Documents, Judged, Labelled, Linked
from training.evaluation.encoders.interface import Representation
from training.evaluation.linguistics import open_tagger
from training.evaluation.results import Figure, Measured
from training.evaluation.tasks.task import Options, Task, UnfitError, sampled

_KINDS = {"NOUN": "nouns", "PROPN": "nouns", "VERB": "verbs", "ADJ": "adjectives"}


class Attention(Task):
    """Mean attention of the first token to nouns, verbs, adjectives and other words."""

    name = "attention"
    title = "Attention by part of speech"
    source = "SimLTE, section 3.6 and appendix C (Figure 3)"
    differences = (
        "The weights are those of [CLS] in the last layer, averaged over the heads. A word's "
        "weight is the sum over its tokens, divided by the mean over the words of its document. "
        "So 1 is no preference, and documents of any length count equally. The paper shows plain "
        "means, on NYT, in a figure without numbers. The task reads the first windows of --sample "
        "documents. An encoder that pools by the mean does not read its vector from [CLS]. The "
        "task needs spaCy and the weights, which neither bundles nor services give."
    )
    columns: ClassVar[Mapping[str, str]] = {
        "nouns": "nouns",
        "verbs": "verbs",
        "adjectives": "adjectives",
        "other": "other words",
    }
    kinds = (Labelled, Linked, Judged, Documents)
    uses = ("seed", "sample", "spacy_model")
    asked_for = True

    def suits(self, representation: Representation) -> bool:
        """Only encoders that give their attention weights."""
        return hasattr(getattr(representation, "encoder", None), "first_token_attention")

    def run(self, representation: Representation, data: AnySet, options: Options) -> Measured:
        """Mean relative weight of each kind of word."""
        encoder = cast(Any, representation).encoder
        tagger = open_tagger(options.spacy_model)
        chosen = sampled(len(data.documents), options.sample, options.seed)
        found: dict[str, list[float]] = {name: [] for name in self.columns}
        for document in tagger.pipe([data.documents[i] for i in chosen]):
            offsets, weights = encoder.first_token_attention(document.text)
            words = [(t.idx, t.idx + len(t), t.pos_) for t in document if t.is_alpha]
            for kind, weight in by_word(words, offsets, weights):
                found[kind].append(weight)
        if not any(found[kind] for kind in ("nouns", "verbs", "adjectives")):
            raise UnfitError(f"{data.name}: no nouns or verbs; does the pipeline tag them?")
        return Measured(
            figures={k: Figure(value=float(np.mean(v))) for k, v in found.items() if v},
            counts={"documents": len(chosen), **{k: len(v) for k, v in found.items()}},
        )


def by_word(
    words: Sequence[tuple[int, int, str]],
    offsets: npt.NDArray[np.int64],
    weights: npt.NDArray[np.float32],
) -> list[tuple[str, float]]:
    """Kind and weight of each word that the tokens reach, relative to their mean.

    Args:
        words: first character, one past the last, and part of speech.
        offsets: characters of each token, ``[tokens, 2]``.
        weights: of each token, ``[tokens]``.
    """
    reached = int(offsets[-1, 1]) if len(offsets) else 0
    found = []
    for begin, end, part in words:
        if end <= reached:
            inside = (offsets[:, 0] >= begin) & (offsets[:, 1] <= end)
            found.append((_KINDS.get(part, "other"), float(weights[inside].sum())))
    mean = np.mean([weight for _, weight in found]) if found else 1.0
    return [(kind, weight / float(mean)) for kind, weight in found]
