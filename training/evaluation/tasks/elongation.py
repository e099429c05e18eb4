"""The elongation attack: a repeated text should keep its meaning."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from docsplit.corpora.sets import AnySet, Documents, Judged, Labelled, Linked
from training.evaluation.encoders.interface import Features, Representation
from training.evaluation.metrics.geometry import row_cosines
from training.evaluation.results import Figure, Measured, Series
from training.evaluation.tasks.task import Options, Task, UnfitError, over_draws, sampled

CHARACTERS = 300
_TEXTS = 40
_QUESTIONS = {
    "unrelated": ("what is NLP?", "what is computer vision?"),
    "related": ("what is natural language processing?", "what is computational linguistics?"),
}


class Elongation(Task):
    """Texts of 300 characters against themselves repeated m times."""

    name = "elongation"
    title = "Elongation attack"
    source = "LA(SER)³, section 2, proof of concept experiments 1 and 2 (Figures 1, 2 and 4)"
    differences = (
        "The texts are the paper's two pairs of questions and, instead of STS-b, the first 300 "
        "characters of up to 40 documents of the set. Related pairs are the first 300 and the "
        "next 300 characters of one document. Unrelated pairs are the first 300 of two. Drift is "
        "the mean change of a pair's cosine when both are repeated. The mean cosine of the "
        "unrelated pairs is the anisotropy of Figure 4. The paper's 0.06 and 0.42 belong to a "
        "MiniLM that was tuned on short questions and reads a text at once. Here an encoder reads "
        "a repeated text by windows, like any other."
    )
    columns: ClassVar[Mapping[str, str]] = {
        "self": "cosine to itself, most copies",
        "self_lowest": "lowest",
        "drift_unrelated": "drift, unrelated",
        "drift_related": "drift, related",
        "questions_before": "unrelated questions, once",
        "questions_after": "repeated",
        "farthest": "farthest on the way",
    }
    kinds = (Labelled, Linked, Judged, Documents)
    uses = ("seed", "copies", "reading")
    version = 2
    main = "self"

    def run(self, representation: Representation, data: AnySet, options: Options) -> Measured:
        """Cosines before and after, for each number of copies."""
        long = [text for text in data.documents if len(text) >= 2 * CHARACTERS]
        if len(long) < 3:
            raise UnfitError(f"{data.name}: fewer than three documents of {2 * CHARACTERS} letters")
        texts = [long[i] for i in sampled(len(long), _TEXTS, options.seed)]
        heads = [text[:CHARACTERS] for text in texts]
        nexts = [text[CHARACTERS : 2 * CHARACTERS] for text in texts]
        own = representation.fitted(data.documents)
        copies = (1, *options.copies)
        found = {m: _Cosines(own, heads, nexts, m, options) for m in copies}
        once, most = found[1], found[copies[-1]]
        itself = {m: row_cosines(once.first, f.first) for m, f in found.items()}
        questions = [f.questions["unrelated"] for f in found.values()]
        figures = {
            "self": over_draws(itself[copies[-1]].tolist()),
            "self_lowest": Figure(value=float(itself[copies[-1]].min())),
            "drift_unrelated": over_draws((most.unrelated - once.unrelated).tolist()),
            "drift_related": over_draws((most.related - once.related).tolist()),
            "anisotropy_before": Figure(value=float(once.unrelated.mean())),
            "anisotropy_after": Figure(value=float(most.unrelated.mean())),
            "questions_before": Figure(value=questions[0]),
            "questions_after": Figure(value=questions[-1]),
            "farthest": Figure(value=max(questions, key=lambda value: abs(value - questions[0]))),
        }
        x = [float(m) for m in copies]
        series = {
            "itself": Series(x=x, y=[float(itself[m].mean()) for m in copies]),
            "itself, lowest": Series(x=x, y=[float(itself[m].min()) for m in copies]),
            "unrelated": Series(x=x, y=[float(f.unrelated.mean()) for f in found.values()]),
            "related": Series(x=x, y=[float(f.related.mean()) for f in found.values()]),
            "questions, unrelated": Series(x=x, y=questions),
            "questions, related": Series(x=x, y=[f.questions["related"] for f in found.values()]),
        }
        samples = {
            "unrelated, once": once.unrelated.tolist(),
            "unrelated, repeated": most.unrelated.tolist(),
            "related, once": once.related.tolist(),
            "related, repeated": most.related.tolist(),
        }
        counts = {"texts": len(texts), "unrelated pairs": len(once.unrelated), "copies": copies[-1]}
        return Measured(
            figures=figures,
            series=series,
            samples=samples,
            counts=counts,
            items=self.items(data, options, texts, {"self": itself[copies[-1]]}),
        )


class _Cosines:
    """Cosines of all pairs for one number of copies.

    Attributes:
        first: features of the first pieces.
        related: cosines of the two pieces of each document, ``[texts]``.
        unrelated: cosines of the first pieces of every two documents, ``[pairs]``.
        questions: cosines of the paper's two pairs.
    """

    def __init__(
        self,
        own: Representation,
        heads: Sequence[str],
        nexts: Sequence[str],
        copies: int,
        options: Options,
    ) -> None:
        asked = [question for pair in _QUESTIONS.values() for question in pair]
        every = [repeated(text, copies) for text in (*heads, *nexts, *asked)]
        rows: Features = own.features(every, options.reading)
        n = len(heads)
        self.first = rows[:n]
        self.related = row_cosines(rows[:n], rows[n : 2 * n])
        one, two = np.triu_indices(n, 1)
        self.unrelated: npt.NDArray[np.float64] = row_cosines(rows[one], rows[two])
        between = row_cosines(rows[2 * n :: 2], rows[2 * n + 1 :: 2])
        self.questions = dict(zip(_QUESTIONS, between.tolist(), strict=True))


def repeated(text: str, copies: int) -> str:
    """A text copied and concatenated (LA(SER)³, eq. 1), with a space between the copies."""
    return " ".join([text] * copies)
