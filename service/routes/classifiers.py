"""/classifiers: train heads on labelled documents, describe, list and delete them."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import Counter
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Request
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from service.documents.pooling import Vectors
from service.edge import deadline
from service.edge.errors import documented
from service.routes import inference
from service.routes.fields import TEXT, valid_text
from service.routes.names import Name

router = APIRouter(prefix="/classifiers", tags=["classify"])

UNSURE = "unsure"
# training takes a core for seconds: one at a time
TRAINING = asyncio.Lock()

Label = Annotated[str, BeforeValidator(valid_text), TEXT, Field(min_length=1, max_length=128)]


class TrainRequest(BaseModel):
    """Labelled documents, two or more of each of two or more labels."""

    model_config = ConfigDict(strict=True)

    inputs: list[Annotated[str, BeforeValidator(valid_text), TEXT]] = Field(
        min_length=1, description="documents of any length"
    )
    labels: list[Label] = Field(min_length=1, description="the label of each")

    @model_validator(mode="after")
    def _enough(self) -> TrainRequest:
        if len(self.inputs) != len(self.labels):
            raise ValueError(f"{len(self.inputs)} inputs and {len(self.labels)} labels")
        counts = Counter(self.labels)
        if len(counts) < 2:
            raise ValueError("labels: there is one label alone: give examples of two or more")
        if UNSURE in counts:
            raise ValueError(f"labels: {UNSURE!r} is what /classify answers below its threshold")
        if min(counts.values()) < 2:
            raise ValueError(
                "labels: a label has a single example: give two or more of each, since every "
                "example is tested by a head that has not seen it"
            )
        return self


class ClassifierOut(BaseModel):
    """A classifier and how good it was on examples held out in cross-validation."""

    name: str
    revision: str
    current: bool = Field(description="whether it fits the served bundle; if not, retrain it")
    labels: dict[str, int] = Field(description="examples of each label")
    folds: int
    accuracy: float
    macro_f1: float
    log_loss: float = Field(description="of the calibrated probabilities, nats")
    temperature: float
    training_seconds: float


class ClassifiersOut(BaseModel):
    """The names of all."""

    classifiers: list[str]


_TRAIN: dict[int | str, Any] = documented(400, 401, 404, 408, 413, 415, 422, 429, 500, 503)


@router.put("/{name}", responses=_TRAIN)
async def train_classifier(request: Request, name: Name, body: TrainRequest) -> ClassifierOut:
    """Train a classifier, or replace it; the answer comes when all replicas have it."""
    return await _train(request, name, body.inputs, body.labels)


@router.post("/{name}/retrain", responses=_TRAIN)
async def retrain_classifier(request: Request, name: Name) -> ClassifierOut:
    """Train a classifier anew for the served bundle, from the examples stored with it."""
    async with deadline.within(request):
        heads = await inference.service_of(request).store.classifiers()
        examples = await heads.examples(name)
    return await _train(request, name, examples.inputs, examples.labels)


@router.get("", responses=documented(401, 422, 503))
async def list_classifiers(request: Request) -> ClassifiersOut:
    """Names of all classifiers."""
    async with deadline.within(request):
        heads = await inference.service_of(request).store.classifiers()
        return ClassifiersOut(classifiers=await heads.names())


@router.get("/{name}", responses=documented(401, 404, 422, 503))
async def describe_classifier(request: Request, name: Name) -> ClassifierOut:
    """What the training said of a classifier."""
    service = inference.service_of(request)
    async with deadline.within(request):
        head = await (await service.store.classifiers()).get(name)
    current = head.revision == service.bundle.manifest.revision
    return ClassifierOut(name=name, revision=head.revision, current=current, **head.report)


@router.delete("/{name}", status_code=204, responses=documented(401, 404, 422, 503))
async def delete_classifier(request: Request, name: Name) -> None:
    """Delete a classifier and its examples."""
    async with deadline.within(request):
        await (await inference.service_of(request).store.classifiers()).delete(name)


async def _train(
    request: Request, name: str, inputs: list[str], labels: list[str]
) -> ClassifierOut:
    service = inference.service_of(request)
    result = await inference.embed(request, inputs)
    vectors = inference.vectors(result)
    async with deadline.within(request), TRAINING:
        heads = await service.store.classifiers()
        from service.heads.store import Examples, Head

        names = sorted(set(labels))
        network, report = await asyncio.to_thread(
            _fit, vectors, labels, names, deadline.of(request)
        )
        revision = service.bundle.manifest.revision
        head = Head(name, uuid.uuid4().hex, revision, names, report, network)
        await heads.put(head, Examples(inputs, labels))
    return ClassifierOut(name=name, revision=revision, current=True, **report)


def _fit(
    vectors: Vectors, labels: list[str], names: list[str], due: float
) -> tuple[Any, dict[str, Any]]:
    from service.heads import training

    numbers = {label: number for number, label in enumerate(names)}
    started = time.monotonic()
    trained = training.train(vectors, np.array([numbers[label] for label in labels]), due)
    return trained.network, {
        "labels": dict(sorted(Counter(labels).items())),
        "folds": trained.folds,
        "accuracy": trained.accuracy,
        "macro_f1": trained.macro_f1,
        "log_loss": trained.log_loss,
        "temperature": trained.network.temperature,
        "training_seconds": time.monotonic() - started,
    }
