"""Answers about classifiers and their labels."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

from docsplit_client.answers import Prediction


class Training(TypedDict):
    """A training that runs, has failed or was lost."""

    state: Literal["running", "failed", "lost"]
    stage: Literal["waiting", "embedding", "training"]
    done: int
    total: int
    started: str
    error: NotRequired[str | None]
    hint: NotRequired[str | None]


class FormerTraining(TypedDict):
    """The quality of a classifier after a former training."""

    examples: NotRequired[int | None]
    accuracy: NotRequired[float | None]
    subset_accuracy: NotRequired[float | None]
    macro_f1: NotRequired[float | None]


class Classifier(TypedDict):
    """A classifier and its quality; during its first training only ``training``."""

    name: str
    training: NotRequired[Training | None]
    revision: NotRequired[str | None]
    current: NotRequired[bool | None]
    bundled: NotRequired[bool | None]
    multi_label: NotRequired[bool | None]
    outputs: NotRequired[list[str] | None]
    examples: NotRequired[int | None]
    unlabelled: NotRequired[int | None]
    labels: NotRequired[dict[str, int] | None]
    folds: NotRequired[int | None]
    accuracy: NotRequired[float | None]
    subset_accuracy: NotRequired[float | None]
    micro_f1: NotRequired[float | None]
    macro_f1: NotRequired[float | None]
    log_loss: NotRequired[float | None]
    temperature: NotRequired[float | None]
    training_seconds: NotRequired[float | None]
    history: NotRequired[list[FormerTraining] | None]


class Labelled(TypedDict):
    """A document with the labels that people gave."""

    index: str
    id: str
    labels: list[str]
    given: str


class LabelledPage(TypedDict):
    """Labelled documents in the order of time; ``next`` is the ``after`` of the next page."""

    documents: list[Labelled]
    next: str | None


class Suggestion(TypedDict):
    """A document whose label would help."""

    id: str
    title: str | None
    probabilities: list[Prediction]
    margin: float
