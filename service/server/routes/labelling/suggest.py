"""POST /classifiers/{name}/suggest: which documents to label next."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel, Field

from service.errors import ConflictError
from service.index.query.filters import Filter, compile_filter
from service.server.bodies.body import Body
from service.server.bodies.fields import INDEX_NAME
from service.server.bodies.large import BodyRoute
from service.server.bodies.names import Name
from service.server.edge import deadline, rights
from service.server.edge.errors import documented
from service.server.routes import inference
from service.server.routes.classify import Prediction, trained_head

router = APIRouter(
    route_class=BodyRoute,
    prefix="/classifiers",
    tags=["classify"],
    dependencies=[Depends(rights.to_use_classifier)],
)

MOST = 200
SHOWN = 2


class SuggestRequest(Body):
    """Where to look for documents to label."""

    index: Annotated[str, Field(pattern=INDEX_NAME)]
    count: int = Field(10, ge=1, le=MOST)
    filter: Filter | None = Field(None, description="see docs/reference/api/search.md, Filters")


class SuggestionOut(BaseModel):
    """A document whose label would help."""

    id: str
    title: str | None
    probabilities: list[Prediction] = Field(description="of the two most probable labels")
    margin: float = Field(description="how certain the classifier is, 0 to 1")


@router.post(
    "/{name}/suggest", responses=documented(400, 401, 404, 408, 409, 413, 415, 422, 500, 503)
)
async def suggest_documents(
    request: Request, name: Name, body: SuggestRequest
) -> list[SuggestionOut]:
    """Unlabelled documents of an index whose labels would help the classifier most."""
    source = await rights.readable(request, body.index)
    service = inference.service_of(request)
    head = await trained_head(request, name)
    async with deadline.within(request):
        indexes = await service.store.indexes()
        index = await indexes.open(source, still=True)
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
