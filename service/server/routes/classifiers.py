"""/classifiers: train heads on labelled documents, describe, list and delete them."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response

from docsplit.heads import examples as bounds
from docsplit.heads.examples import MOST_UNLABELLED, Examples
from docsplit.windowing.pooling import Vectors
from service import executors
from service.embedding.cache import layers
from service.errors import ConflictError, EmptyError, InvalidError, NotFoundError, TooLargeError
from service.keys.file import Right
from service.server.bodies.classifier_bodies import (
    ClassifierOut,
    ClassifiersOut,
    TrainingOut,
    TrainRequest,
)
from service.server.bodies.large import BodyRoute
from service.server.bodies.names import Name
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
    route_class=BodyRoute,
    prefix="/classifiers",
    tags=["classify"],
    dependencies=[Depends(rights.of_classifier)],
)

# above either limit, the service answers before the training
MOST_EXAMPLES = 500
MOST_CHARACTERS = 2_000_000

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
        async with deadline.within(request):
            index = await (await service.store.indexes()).open(source)
            if body.model is None:
                encoder = inference.encoder_of_index(request, index)
            elif index.identity.revision != encoder.revision:
                raise InvalidError(
                    "model: the index has the vectors of another bundle: leave model out, or give "
                    "inputs",
                    "model",
                )
            from service.learning.examples import documents

            reserve = inference.reserving(request)
            texts, vectors = await documents(index, body.ids or [], reserve=reserve)
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
    async with deadline.within(request):
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
    async with deadline.within(request):
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
    async with deadline.within(request):
        return await _describe(service, name, await service.trainings.get(name))


@router.get("/{name}/network", responses=_NETWORK, response_model=None, response_class=Response)
async def download_network(request: Request, name: Name) -> Response:
    """The classifier's weights, to use elsewhere."""
    async with deadline.within(request), TURN.taken():
        heads = await inference.service_of(request).heads.classifiers()
        heads.require_free(name)
        head = await heads.get(name)
    return Response(head.network.to_bytes(), media_type="application/octet-stream")


@router.delete("/{name}", status_code=204, responses=_READ)
async def delete_classifier(request: Request, name: Name) -> None:
    """Delete a classifier with its examples and given labels, and stop its training."""
    service = inference.service_of(request)
    async with deadline.within(request):
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
    async with deadline.within(request):
        (await service.heads.classifiers()).require_free(name)
    await inference.running_of(service)
    texts = examples.inputs
    if vectors is None:
        most = min(MOST_EXAMPLES, service.settings.max_batch_items)
        background = background or examples.characters > MOST_CHARACTERS
    else:
        most = MOST_EXAMPLES
    if background or len(texts) > most:
        async with deadline.within(request):
            # make sure that it exists before the answer reports success
            await service.heads.unlabelled(examples, encoder.revision)
            known = known if vectors is None else list(vectors)
            training = await service.trainings.start(name, examples, known)
            response.status_code = 202
            response.headers["location"] = f"/classifiers/{name}"
            return await _describe(service, name, training)
    TURN.check_room()
    async with deadline.within(request):
        await service.trainings.require_idle(name)
    if vectors is None:
        with layers.stored():
            vectors = inference.vectors(await inference.embed(request, texts, encoder=encoder))
    async with deadline.within(request), TURN.taken():
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
