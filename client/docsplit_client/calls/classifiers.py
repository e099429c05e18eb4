"""Classifiers: train, use, describe and delete them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from docsplit_client.answers import Explained, Prediction
from docsplit_client.calls.call import Call, nothing, parsed, path, raw, several
from docsplit_client.learnt import Classifier, LabelledPage, Suggestion
from docsplit_client.options import ClassifyOptions, LabelsOf, SuggestOptions, TrainOptions


def classify(
    texts: Sequence[str], **options: Unpack[ClassifyOptions]
) -> Call[list[list[Prediction]]]:
    """The labels of whole documents, the most probable first."""
    return Call("POST", "/classify", parsed, {"inputs": [*several(texts, "texts")], **options})


def explain_labels(
    texts: Sequence[str], **options: Unpack[ClassifyOptions]
) -> Call[list[Explained]]:
    """The labels of whole documents, and the windows that decided."""
    inputs = [*several(texts, "texts")]
    return Call("POST", "/classify", parsed, {"inputs": inputs, "explain": True, **options})


def train_classifier(
    name: str, labels: Sequence[str] | Sequence[list[str]], **options: Unpack[TrainOptions]
) -> Call[Classifier]:
    """Train or replace a classifier; ``training`` in the answer shows one that still runs."""
    body = {"labels": [*several(labels, "labels")], **options}
    return Call("PUT", path("classifiers", name), parsed, body, idempotent=False)


def retrain_classifier(name: str, multi_label: bool | None = None) -> Call[Classifier]:
    """Train a classifier again from its stored examples and given labels.

    Args:
        name: of the classifier.
        multi_label: for the first training: whether a document may have several labels, or none.
    """
    place = path("classifiers", name, "retrain", multi_label=multi_label)
    return Call("POST", place, parsed, idempotent=False)


def classifiers() -> Call[list[str]]:
    """The names of all classifiers that the key may use."""
    return Call("GET", "/classifiers", lambda answer: [*answer.json()["classifiers"]])


def classifier(name: str) -> Call[Classifier]:
    """The quality of a classifier, and the progress of its training."""
    return Call("GET", path("classifiers", name), parsed)


def classifier_network(name: str) -> Call[bytes]:
    """The weights of a classifier, an ``.npz`` archive."""
    return Call("GET", path("classifiers", name, "network"), raw)


def suggest(name: str, index: str, **options: Unpack[SuggestOptions]) -> Call[list[Suggestion]]:
    """Documents of an index whose labels would help the classifier most."""
    return Call("POST", path("classifiers", name, "suggest"), parsed, {"index": index, **options})


def give_labels(name: str, index: str, documents: Sequence[LabelsOf]) -> Call[int]:
    """Label documents of an index; returns how many of all indexes have labels."""
    body = {"index": index, "documents": [*documents]}
    where = path("classifiers", name, "labels")
    return Call("POST", where, lambda answer: int(answer.json()["labelled"]), body)


def labels(
    name: str, index: str | None = None, after: str | None = None, limit: int | None = None
) -> Call[LabelledPage]:
    """Documents with the labels that people gave, in the order of time."""
    where = path("classifiers", name, "labels", index=index, after=after, limit=limit)
    return Call("GET", where, parsed)


def delete_classifier(name: str) -> Call[None]:
    """Delete a classifier and its examples, and stop its training."""
    return Call("DELETE", path("classifiers", name), nothing)
