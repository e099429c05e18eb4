"""The control that counts words."""

from collections.abc import Sequence
from typing import Any

from training.evaluation.encoders.interface import Features, Reading

_REVISION = "tf-idf-1"
_ANY_WORD = r"\w+"


class TfIdf:
    """TF-IDF weights (logarithmic counts, smoothed inverse document frequencies, unit length).

    Words and document frequencies come from the texts that it is fitted on.
    """

    name = "tf-idf"
    kind = "control"
    revision = _REVISION
    readings: tuple[Reading, ...] = ("whole",)
    sparse = True

    def __init__(self, vectorizer: Any = None) -> None:
        self._vectorizer = vectorizer
        self.details = {"model": "TF-IDF, linear SVM on top"}

    def fitted(self, texts: Sequence[str]) -> "TfIdf":
        """Learn the words of these texts."""
        from sklearn.feature_extraction.text import TfidfVectorizer

        try:
            return TfIdf(TfidfVectorizer(sublinear_tf=True).fit(texts))
        except ValueError:
            # no word has two letters
            return TfIdf(TfidfVectorizer(sublinear_tf=True, token_pattern=_ANY_WORD).fit(texts))

    def features(self, texts: Sequence[str], reading: Reading = "whole") -> Features:
        """Sparse rows ``[texts, words]``."""
        if reading != "whole":
            raise ValueError("TF-IDF has no windows")
        return self._vectorizer.transform(texts)

    def pace(self) -> float | None:
        """None, because the report does not time it."""
        return None
