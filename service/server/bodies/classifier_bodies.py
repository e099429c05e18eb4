"""Bodies of requests to /classifiers and of their answers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    TypeAdapter,
    WithJsonSchema,
    model_validator,
)

from docsplit.heads import examples
from docsplit.heads.examples import MOST_EXAMPLES
from service.server.bodies.body import Body
from service.server.bodies.fields import INDEX_NAME, valid_text, valid_texts
from service.server.bodies.names import Identifier, identifier

LONGEST_LABEL = 128


def _label(value: Any) -> str:
    text = valid_text(value)
    if not 0 < len(text) <= LONGEST_LABEL:
        raise ValueError(f"a label has 1 to {LONGEST_LABEL} characters")
    return text


def _labels(value: Any) -> list[list[str]]:
    if not isinstance(value, list) or not value:
        raise ValueError("give a list with one entry per document: its label or labels")
    _check_length(value)
    several = isinstance(value[0], list)
    sets: list[list[str]] = []
    for position, item in enumerate(value):
        if isinstance(item, list) != several:
            raise ValueError("give strings, or lists of strings with multi_label, but not both")
        try:
            sets.append([_label(label) for label in (item if several else [item])])
        except ValueError as error:
            raise ValueError(f"item {position}: {error}") from None
    return sets


def _check_length(documents: Sequence[Any]) -> None:
    if len(documents) > MOST_EXAMPLES:
        raise ValueError(
            f"there are {len(documents)} examples, the limit is {MOST_EXAMPLES}: send fewer"
        )


def _ids(value: Any) -> list[str]:
    if not isinstance(value, list):
        raise ValueError("give a list of strings")
    for position, name in enumerate(value):
        try:
            identifier(valid_text(name))
        except ValueError as error:
            raise ValueError(f"item {position}: {error}") from None
    return value


# one error per list, for any number of wrong items
_TEXTS = {"type": "array", "minItems": 1, "items": {"type": "string", "minLength": 1}}
_IDS = {"type": "array", "minItems": 1, "items": TypeAdapter(Identifier).json_schema()}
_LABEL = {"type": "string", "minLength": 1, "maxLength": LONGEST_LABEL}
_LABELS = {
    "anyOf": [
        {"type": "array", "minItems": 1, "items": _LABEL},
        {"type": "array", "minItems": 1, "items": {"type": "array", "items": _LABEL}},
    ]
}


class TrainRequest(Body):
    """Labelled documents: at least two labels with at least two documents each."""

    inputs: Annotated[list[str], BeforeValidator(valid_texts), WithJsonSchema(_TEXTS)] | None = (
        Field(None, min_length=1, description="documents of any length; or give index and ids")
    )
    index: Annotated[str, Field(pattern=INDEX_NAME)] | None = None
    ids: Annotated[list[str], BeforeValidator(_ids), WithJsonSchema(_IDS)] | None = Field(
        None, min_length=1, description="documents of the index, without duplicates"
    )
    labels: Annotated[list[list[str]], BeforeValidator(_labels), WithJsonSchema(_LABELS)] = Field(
        description="the label of each document, or with multi_label a list of its labels"
    )
    multi_label: bool = Field(False, description="a document may have several labels, or none")
    unlabelled: Annotated[str, Field(pattern=INDEX_NAME)] | None = Field(
        None, description="an index whose documents help as pseudo-labelled examples"
    )
    background: bool = Field(False, description="answer at once, and train afterwards")
    model: str | None = Field(
        None,
        description="the bundle whose vectors it reads: a name of GET /v1/models; by default that "
        "of index, else the first one",
    )

    @model_validator(mode="before")
    @classmethod
    def _one_source(cls, data: Any) -> Any:
        # this check runs before that of the base
        cls.known(data)
        if not isinstance(data, dict):
            return data
        given = {name for name in ("inputs", "index", "ids") if data.get(name) is not None}
        if given not in ({"inputs"}, {"index", "ids"}):
            raise ValueError("give either inputs, or index and ids")
        for name in ("inputs", "ids"):
            if isinstance(documents := data.get(name), list):
                _check_length(documents)
        if (ids := data.get("ids")) and isinstance(ids, list):
            _once(ids)
        labels = data.get("labels")
        if isinstance(labels, list) and labels:
            lists = isinstance(labels[0], list)
            if lists and data.get("multi_label", False) is False:
                raise ValueError("labels: send lists of labels only with multi_label")
            if not lists and data.get("multi_label") is True:
                raise ValueError("labels: with multi_label give a list of labels for each document")
        return data

    @model_validator(mode="after")
    def _enough(self) -> TrainRequest:
        documents = self.inputs if self.inputs is not None else self.ids or []
        if len(documents) != len(self.labels):
            kind = "inputs" if self.inputs is not None else "ids"
            raise ValueError(f"{len(documents)} {kind} and {len(self.labels)} labels")
        if self.multi_label and self.unlabelled is not None:
            raise ValueError("unlabelled: do not combine it with multi_label")
        examples.check(self.labels, self.multi_label)
        return self


def _once(ids: Sequence[Any]) -> None:
    seen: dict[str, int] = {}
    for position, name in enumerate(ids):
        if isinstance(name, str) and seen.setdefault(name, position) != position:
            raise ValueError(
                f"ids: positions {seen[name]} and {position} have the same id: send each id once"
            )


class TrainingOut(BaseModel):
    """A training that runs in the background, has failed or was lost."""

    state: Literal["running", "failed", "lost"]
    stage: Literal["waiting", "embedding", "training"]
    done: int = Field(description="documents embedded")
    total: int = Field(description="documents")
    started: datetime
    error: str | None = None
    hint: str | None = None


class FormerOut(BaseModel):
    """A former training of a classifier."""

    examples: int | None = None
    accuracy: float | None = None
    subset_accuracy: float | None = None
    macro_f1: float | None = None


class ClassifierOut(BaseModel):
    """A classifier, and its quality on examples held out in cross-validation.

    During its first training it has only ``training``.
    """

    name: str
    training: TrainingOut | None = Field(default=None, description="absent without a training")
    revision: str | None = None
    current: bool | None = Field(
        default=None, description="whether it fits the served bundle; if not, retrain it"
    )
    bundled: bool | None = Field(
        default=None, description="whether it is part of the bundle and cannot be changed"
    )
    multi_label: bool | None = None
    outputs: list[str] | None = Field(default=None, description="the network's labels in order")
    examples: int | None = None
    unlabelled: int | None = Field(
        default=None, description="documents of the index used as pseudo-labelled examples"
    )
    labels: dict[str, int] | None = Field(default=None, description="examples of each label")
    folds: int | None = None
    accuracy: float | None = Field(default=None, description="absent with multi_label")
    subset_accuracy: float | None = Field(
        default=None, description="with multi_label: share of examples with all labels right"
    )
    micro_f1: float | None = Field(default=None, description="with multi_label")
    macro_f1: float | None = None
    log_loss: float | None = Field(default=None, description="of calibrated probabilities, nats")
    temperature: float | None = None
    training_seconds: float | None = None
    history: list[FormerOut] | None = Field(
        default=None, description="the trainings of this name before it, the oldest first"
    )


class ClassifiersOut(BaseModel):
    """The names of all classifiers, including those in their first training."""

    classifiers: list[str]
    untrained: list[str] = Field(description="names that only have labels that people gave")
