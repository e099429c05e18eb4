"""How often do documents repeat their nouns and verbs?"""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from docsplit.corpora.sets import AnySet, Documents, Judged, Labelled, Linked
from training.evaluation.encoders.interface import Representation
from training.evaluation.linguistics import open_tagger
from training.evaluation.results import Figure, Measured, Series
from training.evaluation.tasks.task import Options, Task, UnfitError, sampled

_CONTENT = ("NOUN", "PROPN", "VERB")
_EDGES = (50, 100, 200, 300)
_COLUMNS = ("words_50", "words_100", "words_200", "words_300", "words_more")


class Redundancy(Task):
    """Nouns and verbs over distinct nouns and verbs, by length; a property of the texts."""

    name = "redundancy"
    title = "Redundancy"
    source = "SimLTE, appendix A (Table 3); DocSplit, appendix A.2 (equation 2, Table 4)"
    differences = (
        "The task reads a sample of --sample documents. It distinguishes lemmas by their part of "
        "speech and counts proper nouns as nouns; the papers do not specify either. Each bucket "
        "shows the mean over its documents. The task needs spaCy and a pipeline (--spacy-model) "
        "and runs only if --tasks names it."
    )
    columns: ClassVar[Mapping[str, str]] = {
        "words_50": "0-50 words",
        "words_100": "51-100",
        "words_200": "101-200",
        "words_300": "201-300",
        "words_more": "> 300",
        "all": "all",
    }
    kinds = (Labelled, Linked, Judged, Documents)
    uses = ("seed", "sample", "spacy_model")
    of_texts = True
    asked_for = True

    def run(self, representation: Representation, data: AnySet, options: Options) -> Measured:
        """Mean redundancy by bucket."""
        del representation
        tagger = open_tagger(options.spacy_model)
        chosen = sampled(len(data.documents), options.sample, options.seed)
        texts = [data.documents[i] for i in chosen]
        found = [redundancy([(t.pos_, t.lemma_) for t in doc]) for doc in tagger.pipe(texts)]
        words = np.asarray([len(text.split()) for text in texts])
        there = np.asarray([value is not None for value in found])
        if not there.any():
            raise UnfitError(f"{data.name}: no nouns or verbs; does the pipeline tag them?")
        values = np.asarray([value or 0.0 for value in found])
        bucket = np.searchsorted(_EDGES, words, side="left")
        figures, series, counts = {}, [], {}
        for number, name in enumerate(_COLUMNS):
            own = there & (bucket == number)
            counts[f"documents of {self.columns[name]}"] = int(own.sum())
            if own.any():
                figures[name] = Figure(value=float(values[own].mean()))
                series.append((self.columns[name], figures[name].value))
        figures["all"] = Figure(value=float(values[there].mean()))
        curve = Series(x=[name for name, _ in series], y=[value for _, value in series])
        return Measured(figures=figures, series={"redundancy": curve}, counts=counts)


def redundancy(tagged: list[tuple[str, str]]) -> float | None:
    """Nouns and verbs over distinct ones (DocSplit, equation 2).

    Args:
        tagged: part of speech and lemma of each word.

    Returns:
        At least 1; None if there are no nouns or verbs.
    """
    content = [
        ("VERB" if pos == "VERB" else "NOUN", lemma) for pos, lemma in tagged if pos in _CONTENT
    ]
    return len(content) / len(set(content)) if content else None
