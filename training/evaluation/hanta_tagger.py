"""HanTa as a spaCy component for parts of speech and lemmas. Its package contains the model.

Wartena 2019, "A Probabilistic Morphology Model for German Lemmatization"; the English model is
trained on the British National Corpus.
"""

from typing import Any

import spacy
from HanTa.HanoverTagger import HanoverTagger
from spacy.language import Language

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


class _Tagger:
    def __init__(self) -> None:
        self._hanta = HanoverTagger("morphmodel_en.pgz")

    def __call__(self, document: Any) -> Any:
        for sentence in document.sents:
            words = [token for token in sentence if not token.is_space]
            tagged = self._hanta.tag_sent([word.text for word in words])
            for word, (_, lemma, tag) in zip(words, tagged, strict=True):
                word.tag_, word.lemma_ = tag, lemma
                word.pos_ = _UNIVERSAL.get(tag[:2], "X")
        return document


@Language.factory("hanta")
def _component(nlp: Any, name: str) -> _Tagger:
    del nlp, name
    return _Tagger()


def hanta_pipeline() -> Any:
    """A spaCy pipeline: its English tokeniser and sentences, HanTa's tags and lemmas."""
    made = spacy.blank("en")
    made.add_pipe("sentencizer")
    made.add_pipe("hanta")
    return made
