"""Tasks on parts of speech, which need spaCy."""

import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, cast

import numpy as np
import numpy.typing as npt

from docsplit.corpora.sets import AnySet, Documents, Judged, Labelled, Linked
from training.errors import SettingsError
from training.evaluation.encoders import Representation
from training.evaluation.results import Figure, Measured, Series
from training.evaluation.tasks.task import DEFAULT_MODEL, Options, Task, UnfitError, sampled

HANTA = "hanta"


# Beginnings of the corpus's C5 tags. C5 does not distinguish auxiliaries from full verbs
# for the forms of "be", "do" and "have".
_UNIVERSAL = {
    "NP": "PROPN",
    "NN": "NOUN",
    "VV": "VERB",
    "VB": "AUX",
    "VD": "AUX",
    "VH": "AUX",
    "VM": "AUX",
    "AJ": "ADJ",
    "AV": "ADV",
}


def open_tagger(model: str) -> Any:
    """A spaCy pipeline that tags parts of speech and gives lemmas.

    Args:
        model: an installed pipeline's name, or a folder; ``hanta`` needs no download.

    Raises:
        SettingsError: spaCy, HanTa or the pipeline is not installed. The message says how to
            install it.
    """
    needed = ("spacy", "HanTa") if model == HANTA else ("spacy",)
    if any(importlib.util.find_spec(package) is None for package in needed):
        raise SettingsError(
            "parts of speech need spaCy: run pip install 'docsplit[linguistics]', then "
            f"python -m spacy download {DEFAULT_MODEL} or --spacy-model {HANTA}"
        )
    if model == HANTA:
        return _hanta_pipeline()
    import spacy

    try:
        return spacy.load(model, exclude=["ner"])
    except OSError:
        raise SettingsError(
            f"--spacy-model {model}: no such pipeline; run python -m spacy "
            f"download {DEFAULT_MODEL}, name a folder, or use {HANTA}, which needs no download"
        ) from None


_CONTENT = ("NOUN", "PROPN", "VERB")
_EDGES = (50, 100, 200, 300)
_COLUMNS = ("words_50", "words_100", "words_200", "words_300", "words_more")


def _hanta_pipeline() -> Any:
    """spaCy's English tokeniser and sentences, with HanTa's tags and lemmas.

    HanTa's package contains its model (Wartena 2019, "A Probabilistic Morphology Model for German
    Lemmatization"); the English one is trained on the British National Corpus.
    """
    import spacy
    from HanTa.HanoverTagger import HanoverTagger
    from spacy.language import Language

    hanta = HanoverTagger("morphmodel_en.pgz")

    @Language.component("hanta")
    def tag(document: Any) -> Any:
        for sentence in document.sents:
            words = [token for token in sentence if not token.is_space]
            tagged = hanta.tag_sent([word.text for word in words])
            for word, (_, lemma, found) in zip(words, tagged, strict=True):
                word.tag_, word.lemma_ = found, lemma
                word.pos_ = _UNIVERSAL.get(found[:2], "X")
        return document

    made = spacy.blank("en")
    made.add_pipe("sentencizer")
    made.add_pipe("hanta")
    return made


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
