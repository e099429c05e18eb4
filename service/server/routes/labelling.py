"""For people who label documents: the labels that they give, and which documents to label next."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, WithJsonSchema

from docsplit.heads.examples import UNSURE
from service.errors import ConflictError, InvalidError, NotFoundError
from service.index.query.filters import Filter, compile_filter
from service.keys.file import Right
from service.server.bodies.fields import INDEX_NAME, Body, Identifier, Name
from service.server.bodies.large import BoundedRoute
from service.server.edge import rights
from service.server.edge.errors import documented
from service.server.routes import inference
from service.server.routes.classifiers import LABEL, label
from service.server.routes.classify import Prediction, trained_head

router = APIRouter(route_class=BoundedRoute, prefix="/classifiers/{name}", tags=["classify"])

_GIVING = [Depends(rights.of_classifier)]
# documents of one call, and of one page
MOST = 1000
# labels of one document
MOST_LABELS = 32
# documents that a call suggests, and labels that it names of each
MOST_SUGGESTED = 200
SHOWN = 2


def _few(value: Any) -> Any:
    if isinstance(value, list) and len(value) > MOST:
        raise ValueError(f"there are {len(value)} documents, the limit is {MOST}: send fewer")
    return value


def _labels(value: Any) -> Any:
    if value is None:
        return None
    if not isinstance(value, list) or len(value) > MOST_LABELS:
        raise ValueError(f"give a list of up to {MOST_LABELS} labels, or null to remove them")
    for item in value:
        label(item)
    if len(set(value)) < len(value):
        raise ValueError("a label occurs twice")
    if UNSURE in value:
        raise ValueError(f"{UNSURE!r} is the answer of /classify below its threshold")
    return value


_LABELS = {"type": "array", "maxItems": MOST_LABELS, "items": LABEL}


class LabelIn(Body):
    """A document and its labels."""

    id: Identifier
    labels: Annotated[
        list[str] | None,
        BeforeValidator(_labels),
        WithJsonSchema({"anyOf": [_LABELS, {"type": "null"}]}),
    ] = Field(description="null removes them")


def _once(given: Sequence[LabelIn]) -> Sequence[LabelIn]:
    if len({one.id for one in given}) < len(given):
        raise ValueError("an id occurs twice: send each id once")
    return given


class LabelsRequest(Body):
    """Labels of documents of an index."""

    index: Annotated[str, Field(pattern=INDEX_NAME)]
    documents: Annotated[list[LabelIn], BeforeValidator(_few), AfterValidator(_once)] = Field(
        min_length=1, max_length=MOST
    )


class GivenOut(BaseModel):
    """What a classifier has after the call."""

    labelled: int = Field(description="documents of all indexes that have labels")


class LabelledOut(BaseModel):
    """A document with its labels."""

    index: str = Field(description="its name in the call that gave the labels")
    id: str
    labels: list[str]
    given: datetime


class LabelledPageOut(BaseModel):
    """Documents in the order in which they got their labels."""

    documents: list[LabelledOut]
    next: str | None = Field(description="the next page's `after`; null on the last page")


class SuggestRequest(Body):
    """Where to look for documents to label."""

    index: Annotated[str, Field(pattern=INDEX_NAME)]
    count: int = Field(10, ge=1, le=MOST_SUGGESTED)
    filter: Filter | None = Field(None, description="see docs/reference/api/search.md, Filters")


class SuggestionOut(BaseModel):
    """A document whose label would help."""

    id: str
    title: str | None
    probabilities: list[Prediction] = Field(description="of the two most probable labels")
    margin: float = Field(description="how certain the classifier is, 0 to 1")


@router.post(
    "/suggest",
    dependencies=[Depends(rights.to_use_classifier)],
    responses=documented(400, 401, 404, 408, 409, 413, 415, 422, 500, 503),
)
async def suggest_documents(
    request: Request, name: Name, body: SuggestRequest
) -> list[SuggestionOut]:
    """Unlabelled documents of an index whose labels would help the classifier most."""
    source = await rights.readable(request, body.index)
    service = inference.service_of(request)
    head = await trained_head(request, name)
    indexes = await service.store.indexes()
    index = await inference.open_index(request, source)
    if index.identity.revision != head.revision:
        raise ConflictError(
            "the index has the vectors of another bundle than the classifier: use an index of "
            "the classifier's bundle"
        )
    where = compile_filter(body.filter, index.identity.fields) if body.filter else None
    labelled = await (await service.heads.classifiers()).labelled(name)
    # a training that runs, or waits to resume, has labels as well
    training = await service.trainings.get(name)
    if training is not None:
        labelled |= await service.trainings.labelled(training)
    from service.index.rows import keyed
    from service.learning.suggest import suggest

    names = await keyed.names(indexes, source)
    given = await (await service.heads.labels()).ids(name, names)
    found = await suggest(index, head.network, labelled, body.count, where, given)
    return [
        SuggestionOut(
            id=one.id,
            title=one.title,
            probabilities=[
                Prediction(label=head.labels[i], score=float(one.probabilities[i]))
                for i in (-one.probabilities).argsort(kind="stable")[:SHOWN]
            ],
            margin=one.margin,
        )
        for one in found
    ]


@router.post(
    "/labels",
    dependencies=_GIVING,
    responses=documented(400, 401, 404, 408, 409, 413, 415, 422, 503),
)
async def give_labels(request: Request, name: Name, body: LabelsRequest) -> GivenOut:
    """Label documents of an index, or remove their labels; the classifier need not exist yet.

    The answer comes when the labels are durable. ``POST /classifiers/{name}/retrain`` learns them.
    Labels by an alias belong to the documents of the index that it names at that time.
    """
    source = await rights.readable(request, body.index)
    heads = inference.service_of(request).heads
    classifiers = await heads.classifiers()
    classifiers.require_free(name)
    try:
        several = (await classifiers.get(name)).multi_label
    except NotFoundError:
        several = True
    given = {one.id: one.labels for one in body.documents}
    for place, labels in enumerate(given.values()):
        if labels is not None and len(labels) != 1 and not several:
            raise InvalidError(
                f"documents.{place}.labels: this classifier gives each document one label: "
                "give a list of one",
                "documents",
            )
    indexes = await inference.service_of(request).store.indexes()
    from service.index.rows import keyed
    from service.learning.examples import present

    held = await heads.labels()
    names = {body.index, *await keyed.names(indexes, source)}
    wanted = [one for one, labels in given.items() if labels is not None]
    missing: set[str] = set()
    # labels outlive their index, and can still be removed
    if wanted or not await held.ids(name, names):
        index = await indexes.open(source, still=True)
        missing = {*wanted} - {*await present(index, wanted)}
    if missing:
        place = next(place for place, one in enumerate(given) if one in missing)
        raise InvalidError(
            f"documents: {len(missing)} of {len(given)} are not in the index, the first at "
            f"position {place}",
            "documents",
        )
    labelled = await held.give(name, body.index, given, names - {body.index})
    return GivenOut(labelled=labelled)


@router.get("/labels", dependencies=_GIVING, responses=documented(401, 404, 422, 503))
async def list_labels(
    request: Request,
    name: Name,
    index: Annotated[
        str | None, Query(pattern=INDEX_NAME, description="documents of this index only")
    ] = None,
    after: Annotated[str, Query(description="`next` of the page before")] = "",
    limit: Annotated[int, Query(ge=1, le=MOST)] = 100,
) -> LabelledPageOut:
    """Labels that people gave, to documents of indexes that the key may read."""
    chosen = None if index is None else await rights.readable(request, index)
    service = inference.service_of(request)
    labels, indexes = await service.heads.labels(), await service.store.indexes()
    if chosen is None:
        known = await indexes.aliases.all()
        sources = {source: known.get(source, source) for source in await labels.indexes(name)}
        seen = set(rights.seen(request, sources.values(), Right.READ_INDEXES))
        wanted = {source for source, real in sources.items() if real in seen}
    else:
        from service.index.rows import keyed

        wanted = await keyed.names(indexes, chosen)
    found, following = await labels.page(name, wanted, after, limit)
    return LabelledPageOut(
        documents=[
            LabelledOut(
                index=one.index,
                id=one.id,
                labels=one.labels,
                given=datetime.fromtimestamp(one.given, UTC),
            )
            for one in found
        ],
        next=following,
    )
