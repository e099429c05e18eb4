"""/classifiers/{name}/labels: labels that people give to documents, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, WithJsonSchema

from docsplit.heads.examples import UNSURE
from service.errors import InvalidError, NotFoundError
from service.keys.file import Right
from service.server.bodies.body import Body
from service.server.bodies.fields import INDEX_NAME, valid_text
from service.server.bodies.large import BodyRoute
from service.server.bodies.names import Identifier, Name
from service.server.edge import deadline, rights
from service.server.edge.errors import documented
from service.server.routes import inference
from service.server.routes.classifiers import LONGEST_LABEL

router = APIRouter(
    route_class=BodyRoute,
    prefix="/classifiers/{name}/labels",
    tags=["classify"],
    dependencies=[Depends(rights.of_classifier)],
)

# documents of one call, and of one page
MOST = 1000
# labels of one document
MOST_LABELS = 32


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
        if not 0 < len(valid_text(item)) <= LONGEST_LABEL:
            raise ValueError(f"a label has 1 to {LONGEST_LABEL} characters")
    if len(set(value)) < len(value):
        raise ValueError("a label occurs twice")
    if UNSURE in value:
        raise ValueError(f"{UNSURE!r} is the answer of /classify below its threshold")
    return value


_LABELS = {
    "type": "array",
    "maxItems": MOST_LABELS,
    "items": {"type": "string", "minLength": 1, "maxLength": LONGEST_LABEL},
}


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


@router.post("", responses=documented(400, 401, 404, 408, 409, 413, 415, 422, 503))
async def give_labels(request: Request, name: Name, body: LabelsRequest) -> GivenOut:
    """Label documents of an index, or remove their labels; the classifier need not exist yet.

    The answer comes when the labels are durable. ``POST /classifiers/{name}/retrain`` learns them.
    Labels by an alias belong to the documents of the index that it names at that time.
    """
    source = await rights.readable(request, body.index)
    heads = inference.service_of(request).heads
    async with deadline.within(request):
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


@router.get("", responses=documented(401, 404, 422, 503))
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
    async with deadline.within(request):
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
