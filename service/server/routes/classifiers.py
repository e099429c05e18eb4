"""/classifiers: train heads on labelled documents, describe, list and delete them."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response
from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    TypeAdapter,
    WithJsonSchema,
    model_validator,
)

from docsplit.heads import examples as bounds
from docsplit.heads.examples import MOST_UNLABELLED, Examples
from docsplit.windowing.pooling import Vectors
from service import executors
from service.embedding.cache import layers
from service.errors import ConflictError, EmptyError, InvalidError, NotFoundError, TooLargeError
from service.keys.file import Right
from service.server.bodies.fields import (
    INDEX_NAME,
    Body,
    Identifier,
    Name,
    identifier,
    valid_text,
    valid_texts,
)
from service.server.bodies.large import BoundedRoute
from service.server.edge import deadline, rights
from service.server.edge.errors import documented
from service.server.lifecycle import Service
from service.server.routes import inference
from service.server.routes.turns import TURN

if TYPE_CHECKING:
    from docsplit.heads.network import Learnt
    from service.learning.heads import Head
    from service.learning.labels import Labelled
    from service.learning.trainings import Training

router = APIRouter(
    route_class=BoundedRoute,
    prefix="/classifiers",
    tags=["classify"],
    dependencies=[Depends(rights.of_classifier)],
)

# above either limit, the service answers before the training
MOST_AT_ONCE = 500
MOST_CHARACTERS = 2_000_000

LONGEST_LABEL = 128


def label(value: Any) -> str:
    """Return the value if it is a valid label; raise ValueError if not.

    Labels that differ in a blank at an end look the same, so none may stand there.
    """
    text = valid_text(value)
    if not 0 < len(text) <= LONGEST_LABEL or text != text.strip():
        raise ValueError(f"a label has 1 to {LONGEST_LABEL} characters, no blank at either end")
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
            sets.append([label(one) for one in (item if several else [item])])
        except ValueError as error:
            raise ValueError(f"item {position}: {error}") from None
    return sets


def _check_length(documents: Sequence[Any]) -> None:
    if len(documents) > bounds.MOST_EXAMPLES:
        raise ValueError(
            f"there are {len(documents)} examples, the limit is {bounds.MOST_EXAMPLES}: send fewer"
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
LABEL = {"type": "string", "minLength": 1, "maxLength": LONGEST_LABEL}
_LABELS = {
    "anyOf": [
        {"type": "array", "minItems": 1, "items": LABEL},
        {"type": "array", "minItems": 1, "items": {"type": "array", "items": LABEL}},
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
        bounds.check(self.labels, self.multi_label)
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
    none_below: float | None = Field(default=None, description="threshold of `none`")
    training_seconds: float | None = None
    history: list[FormerOut] | None = Field(
        default=None, description="the trainings of this name before it, the oldest first"
    )


class ClassifiersOut(BaseModel):
    """The names of all classifiers, including those in their first training."""

    classifiers: list[str]
    untrained: list[str] = Field(description="names that only have labels that people gave")


_TRAIN: dict[int | str, Any] = {
    202: {"description": "Training in the background.", "model": ClassifierOut},
    **documented(400, 401, 404, 408, 409, 413, 415, 422, 429, 500, 503),
}
_READ = documented(401, 404, 409, 422, 503)
_NETWORK: dict[int | str, Any] = {
    200: {
        "description": "An .npz archive.",
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    },
    **_READ,
}


@router.put("/{name}", responses=_TRAIN, response_model_exclude_none=True)
async def train_classifier(
    request: Request, response: Response, name: Name, body: TrainRequest
) -> ClassifierOut:
    """Train or replace a classifier; the answer comes when all replicas have it.

    With many examples it comes once these are stored, and the training continues.
    """
    service = inference.service_of(request)
    vectors = None
    encoder = service.encoders.named(body.model)
    if body.index is not None:
        source = await rights.readable(request, body.index)
        if not body.background:
            TURN.check_room()
        index = await (await service.store.indexes()).open(source)
        if body.model is None:
            of_index = inference.encoder_of_index(request, index)
            # the former bundle teaches nothing: its successor embeds the texts
            encoder = of_index if service.encoders.serves(of_index.name) else encoder
        elif index.identity.revision != encoder.revision:
            raise InvalidError(
                "model: the index has the vectors of another bundle: leave model out, or give "
                "inputs",
                "model",
            )
        from service.learning.examples import documents

        reserve = inference.reserving(request)
        texts, vectors = await documents(index, body.ids or [], reserve=reserve)
        if index.identity.revision != encoder.revision:
            vectors = None
    else:
        texts = body.inputs or []
    for position, text in enumerate(texts):
        if not text.strip():
            raise EmptyError(f"input {position} is empty: its text makes no token")
    unlabelled = body.unlabelled and await rights.readable(request, body.unlabelled)
    # a service with one bundle may later serve its successor under another name
    model = encoder.name if body.model is not None or len(service.encoders) > 1 else None
    examples = Examples(texts, body.labels, body.multi_label, unlabelled, model)
    return await _train(request, response, name, examples, vectors, body.background)


@router.post("/{name}/retrain", responses=_TRAIN, response_model_exclude_none=True)
async def retrain_classifier(
    request: Request,
    response: Response,
    name: Name,
    multi_label: Annotated[
        bool | None,
        Query(
            description="for the first training: a document may have several labels, or none; by "
            "default, whether one has"
        ),
    ] = None,
) -> ClassifierOut:
    """Train a classifier again for its served bundle, from its stored examples and given labels.

    If a training in the background was lost or failed, this uses the examples of that training.
    With labels that people gave (``/labels``) the training runs in the background.
    """
    service = inference.service_of(request)
    trainings = service.trainings
    classifiers = await service.heads.classifiers()
    classifiers.require_free(name)
    await trainings.require_idle(name)
    training = await trainings.get(name)
    reserve = inference.reserving(request)
    stored = None if training is None else await trainings.examples(training, reserve)
    resumed = stored is not None
    if stored is None:
        with suppress(NotFoundError):
            stored = await classifiers.examples(name, reserve)
    if stored is not None and multi_label not in (None, stored.multi_label):
        raise InvalidError(
            "multi_label: the classifier has examples of the other kind: leave multi_label "
            "out, or PUT the classifier again",
            "multi_label",
        )
    known = None
    labelled = await _given(request, name)
    if labelled or (stored is not None and stored.labelled_in):
        from service.learning.examples import gather

        indexes = await service.store.indexes()
        examples, known = await gather(indexes, stored, labelled, multi_label, reserve)
    elif stored is not None:
        examples = stored
    elif training is not None:
        raise ConflictError(
            "the classifier has no examples: its training failed because of them; PUT it again"
        )
    else:
        raise NotFoundError("there is no classifier of that name")
    background = resumed or bool(labelled)
    return await _train(request, response, name, examples, None, background, known)


@router.get("", responses=documented(401, 422, 503))
async def list_classifiers(request: Request) -> ClassifiersOut:
    """Names of all classifiers that the key may use or train."""
    service = inference.service_of(request)
    heads = service.heads
    # in this order: a training that ends in between is in both lists, never in neither
    names = set(await service.trainings.names())
    names.update(await (await heads.classifiers()).names())
    fresh = await (await heads.labels()).classifiers() - names
    either = (Right.USE_CLASSIFIERS, Right.TRAIN_CLASSIFIERS)
    return ClassifiersOut(
        classifiers=sorted(rights.seen(request, names, *either)),
        untrained=sorted(rights.seen(request, fresh, *either)),
    )


@router.get("/{name}", responses=_READ, response_model_exclude_none=True)
async def describe_classifier(request: Request, name: Name) -> ClassifierOut:
    """The measurements from a classifier's training, and the progress of a running one."""
    service = inference.service_of(request)
    return await _describe(service, name, await service.trainings.get(name))


@router.get("/{name}/network", responses=_NETWORK, response_model=None, response_class=Response)
async def download_network(request: Request, name: Name) -> Response:
    """The classifier's weights, to use elsewhere."""
    async with TURN.taken():
        heads = await inference.service_of(request).heads.classifiers()
        heads.require_free(name)
        head = await heads.get(name)
    return Response(head.network.to_bytes(), media_type="application/octet-stream")


@router.delete("/{name}", status_code=204, responses=_READ)
async def delete_classifier(request: Request, name: Name) -> None:
    """Delete a classifier with its examples and given labels, and stop its training."""
    service = inference.service_of(request)
    (classifiers := await service.heads.classifiers()).require_free(name)  # before any change
    existed = await service.trainings.remove(name)
    existed = await (await service.heads.labels()).forget(name) or existed
    try:
        await classifiers.delete(name)
    except NotFoundError:
        if not existed:
            raise


async def _train(
    request: Request,
    response: Response,
    name: str,
    examples: Examples,
    vectors: Vectors | None,
    background: bool,
    known: Sequence[Vectors | None] | None = None,
) -> ClassifierOut:
    service = inference.service_of(request)
    if not service.encoders.serves(examples.model):
        raise ConflictError(
            f"the classifier reads vectors of the bundle {examples.model!r}, and the service does "
            "not serve it: PUT the classifier again for another bundle, or ask the operator to "
            "serve that one"
        )
    encoder = service.encoders.named(examples.model)
    further = 0 if examples.unlabelled is None else MOST_UNLABELLED
    try:
        bounds.check_training(
            len(examples.inputs) + further,
            len(examples.counts()),
            encoder.manifest.dimensions,
            examples.multi_label,
        )
    except ValueError as error:
        raise TooLargeError(str(error), "labels") from error
    try:
        await executors.BODIES.run(examples.check_texts)
    except ValueError as error:
        raise InvalidError(str(error), "labels") from error
    if examples.unlabelled is not None:
        rights.require(request, Right.READ_INDEXES, examples.unlabelled)
    (await service.heads.classifiers()).require_free(name)
    await inference.running_of(service)
    texts = examples.inputs
    if vectors is None:
        most = min(MOST_AT_ONCE, service.settings.max_batch_items)
        background = background or examples.characters > MOST_CHARACTERS
    else:
        most = MOST_AT_ONCE
    if background or len(texts) > most:
        # make sure that it exists before the answer reports success
        await service.heads.unlabelled(examples, encoder.revision)
        known = known if vectors is None else list(vectors)
        training = await service.trainings.start(name, examples, known)
        response.status_code = 202
        response.headers["location"] = f"/classifiers/{name}"
        return await _describe(service, name, training)
    TURN.check_room()
    await service.trainings.require_idle(name)
    if vectors is None:
        with layers.stored():
            vectors = inference.vectors(await inference.embed(request, texts, encoder=encoder))
    async with TURN.taken():
        head = await _learn(request, encoder.revision, name, examples, vectors)
        former = await service.trainings.get(name)
        if former is not None and former.state != "running":
            await service.trainings.remove(name)
    return _described(service, head)


async def _learn(
    request: Request, revision: str, name: str, examples: Examples, vectors: Vectors
) -> Head:
    service = inference.service_of(request)
    heads = await service.heads.classifiers()
    from service.learning.heads import Head

    expiry = deadline.of(request)
    further = await service.heads.unlabelled(examples, revision)

    def learn(stop: threading.Event) -> Learnt:
        # the import takes seconds
        from docsplit.heads.learn import learn

        return learn(vectors, examples, expiry, stop, further)

    learnt = await executors.TRAINING.run_stoppable(learn)
    head = Head(name, uuid.uuid4().hex, revision, learnt.labels, learnt.report, learnt.network)
    return await heads.put(head, examples)


async def _given(request: Request, classifier: str) -> list[Labelled]:
    """A classifier's labelled documents.

    Raises:
        ForbiddenError: the key may not read one of their indexes.
    """
    service = inference.service_of(request)
    labelled = await (await service.heads.labels()).all(classifier)
    if labelled:
        aliases = await (await service.store.indexes()).aliases.all()
        for index in {aliases.get(one.index, one.index) for one in labelled}:
            rights.require(request, Right.READ_INDEXES, index)
    return labelled


async def _describe(service: Service, name: str, training: Training | None) -> ClassifierOut:
    try:
        head = await (await service.heads.classifiers()).get(name)
    except NotFoundError:
        if training is None:
            raise
        return ClassifierOut(name=name, training=_training(name, training))
    if training is not None and head.uid == training.uid:
        # the training is done, but its replica ended before it could report that
        training = None
    described = _described(service, head)
    if training is not None:
        described.training = _training(name, training)
    return described


def _described(service: Service, head: Head) -> ClassifierOut:
    return ClassifierOut(
        name=head.name,
        revision=head.revision,
        current=head.revision in service.encoders.revisions,
        bundled=head.bundled,
        multi_label=head.multi_label,
        outputs=head.labels,
        **head.report,
    )


def _training(name: str, training: Training) -> TrainingOut:
    hints = {
        "running": None,
        "failed": "fix the examples and PUT them again"
        if not training.key
        else f"POST /classifiers/{name}/retrain tries again with the stored examples",
        "lost": f"another replica takes it over soon; POST /classifiers/{name}/retrain does so now",
    }
    return TrainingOut(
        state=training.state,
        stage=training.stage,
        **training.job.progress,
        started=datetime.fromtimestamp(training.job.started, UTC),
        error=training.job.error or None,
        hint=hints[training.state],
    )
