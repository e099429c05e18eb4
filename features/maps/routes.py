"""/indexes/{name}/map and /topics: documents in two dimensions, and groups of them."""

from __future__ import annotations

import base64
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from fastapi import Query, Request, Response
from numpy.typing import NDArray
from pydantic import BaseModel, Field

from features.maps.feature import mapping_of
from service import executors
from service.embedding.batching import clients
from service.errors import ConflictError, UnavailableError
from service.index.rows.fields import KEY_CHARACTERS
from service.server.bodies.encoding import json_response
from service.server.bodies.fields import INDEX_NAME, Name
from service.server.edge import rights
from service.server.edge.errors import documented
from service.server.routes import inference
from service.server.routes.classify import trained_head
from service.server.routes.stored.jobs import JobOut, out_of

if TYPE_CHECKING:
    from features.maps.current import Current
    from features.maps.labels import Labels
    from service.learning.heads import Head

router = rights.below_index()

MOST_DOCUMENTS = 100_000
# limit of the characters of the ids in one answer
MOST_CHARACTERS = 8 * 2**20
# values of a field that one answer names
MOST_VALUES = 1000


class MapHead(BaseModel):
    """The state of a map."""

    made: datetime
    version: str = Field(description="another one after the map was computed again")
    total: int = Field(description="documents of the index on the map")
    placed: int = Field(
        description="of these, documents that are newer than the map; their neighbours give their "
        "places"
    )
    unplaced: int = Field(
        description="further new documents; later requests place the first 20,000"
    )
    stale: float = Field(description="share of the index's documents that are newer than the map")


class ValuesOut(BaseModel):
    """The values of a field."""

    field: str
    values: list[str | int | bool] = Field(description="the most frequent, in this order")
    codes: str = Field(
        description="base64 of little-endian int32: position of each document's value, or -1"
    )


class LabelsOut(BaseModel):
    """The labels that a classifier gives the documents."""

    classifier: str
    labels: list[str] = Field(description="the most frequent one first")
    codes: str = Field(
        description="base64 of little-endian int32: position of each document's most probable "
        "label, or -1"
    )
    scores: str = Field(
        description="base64 of little-endian float32: the probability of that label"
    )
    pending: int = Field(description="documents that later requests label")


class MapOut(MapHead):
    """Documents on the map, in the order of their ids."""

    ids: list[str]
    positions: str = Field(
        description="base64 of little-endian float32: x and y of each document in turn"
    )
    topics: str = Field(
        description="base64 of little-endian int32: number of each document's topic, or -1"
    )
    values: ValuesOut | None = Field(description="of the `field` in the request")
    labels: LabelsOut | None = Field(description="by the `classifier` in the request")
    next: str | None = Field(description="`after` of the next page; null on the last")


class TopicOut(BaseModel):
    """A group of similar documents."""

    topic: int = Field(description="its number on this map")
    name: str = Field(description="its first words")
    words: list[str] = Field(
        description="words that distinguish its documents from others, the best first"
    )
    size: int = Field(description="documents that the index has now")
    centre: list[float] | None = Field(
        description="x and y: mean of their positions; null without documents"
    )
    examples: list[str] = Field(description="ids of documents from its middle")


class TopicsOut(MapHead):
    """The topics of a map, the largest first at the time when it was made."""

    topics: list[TopicOut]
    without: int = Field(description="documents on the map without a topic")


_COMPUTED: dict[int | str, dict[str, Any]] = {
    202: {
        "description": "The job is queued.",
        "headers": {"location": {"description": "its path", "schema": {"type": "string"}}},
    },
    **documented(401, 404, 409, 422, 429, 503),
}
_READ = documented(401, 404, 409, 422, 429, 503)
_MAP: dict[int | str, dict[str, Any]] = {200: {"model": MapOut}, **_READ}


@router.post("/map", status_code=202, responses=_COMPUTED)
async def compute_map(request: Request, response: Response, name: Name) -> JobOut:
    """Compute the map and the topics of the index in a job; `location` names it.

    The former map serves until then. If such a job is queued or runs, the answer is that job.
    """
    service = inference.service_of(request)
    if service.ending:
        raise UnavailableError("the service is stopping: repeat the request in a moment")
    index = await (await service.store.indexes()).open(name)
    job = await mapping_of(request).begin(name, index, clients.current().name)
    response.headers["location"] = f"/jobs/{job.id}"
    return out_of(job)


@router.get("/map", responses=_MAP, response_model=None, response_class=Response)
async def read_map(
    request: Request,
    name: Name,
    after: Annotated[str, Query(max_length=512, description="an id")] = "",
    limit: Annotated[int, Query(ge=1, le=MOST_DOCUMENTS)] = MOST_DOCUMENTS,
    sample: Annotated[
        bool, Query(description="a random sample of `limit` documents, in place of a page")
    ] = False,
    field: Annotated[
        str | None,
        Query(
            max_length=KEY_CHARACTERS,
            description="a declared string, integer or boolean field whose values to add",
        ),
    ] = None,
    classifier: Annotated[
        str | None,
        Query(pattern=INDEX_NAME, description="a trained classifier whose labels to add"),
    ] = None,
) -> Response:
    """Positions and topics of the index's documents. New documents are placed on the way."""
    head = None if classifier is None else await _head_for(request, name, classifier)
    mapping = mapping_of(request)
    current = await mapping.current(name, field)
    places = await executors.STORE.run(_places, current, after, limit, sample)
    content = await executors.STORE.run(_page, current, places, sample)
    if field is not None:
        content["values"] = await executors.STORE.run(_values, field, current, places)
    if head is not None:
        found = await mapping.labels(current, places, head.uid, head.network)
        content["labels"] = await executors.STORE.run(_labels, head, found)
    return json_response(content)


@router.get("/topics", responses=_READ)
async def list_topics(request: Request, name: Name) -> TopicsOut:
    """The topics of the index's map."""
    current = await mapping_of(request).current(name)
    return await executors.STORE.run(_topics, current)


async def _head_for(request: Request, name: str, classifier: str) -> Head:
    """A classifier that reads the vectors of an index."""
    head = await trained_head(request, classifier)
    index = await (await inference.service_of(request).store.indexes()).open(name)
    if index.identity.revision != head.revision:
        raise ConflictError(
            "classifier: it reads the vectors of another bundle than that of the index: train one "
            "on documents of this index"
        )
    return head


def _head(current: Current) -> dict[str, Any]:
    return {
        "made": datetime.fromtimestamp(current.map.made, UTC),
        "version": current.map.version,
        "total": len(current.ids),
        "placed": current.placed,
        "unplaced": current.unplaced,
        "stale": current.stale,
    }


def _places(current: Current, after: str, limit: int, sample: bool) -> NDArray[np.int64]:
    """Positions of a page's documents in ``current.ids``."""
    number = len(current.ids)
    if sample and number > limit:
        rows = np.sort(np.random.default_rng(0).permutation(number)[:limit])
    else:
        start = int(np.searchsorted(np.array(current.ids, dtype=object), after, side="right"))
        rows = np.arange(0 if sample else start, number)[:limit]
    lengths = np.cumsum([len(current.ids[row]) for row in rows])
    # one id always fits
    return rows[: max(1, int(np.searchsorted(lengths, MOST_CHARACTERS, side="right")))]


def _page(current: Current, places: NDArray[np.int64], sample: bool) -> dict[str, Any]:
    more = not sample and len(places) > 0 and int(places[-1]) < len(current.ids) - 1
    return _head(current) | {
        "ids": [current.ids[place] for place in places],
        "positions": _encoded(current.positions[places].astype("<f4")),
        "topics": _encoded(current.topic[places].astype("<i4")),
        "values": None,
        "labels": None,
        "next": current.ids[int(places[-1])] if more else None,
    }


def _values(field: str, current: Current, places: NDArray[np.int64]) -> dict[str, Any]:
    values = current.values or []
    counts = Counter(value for value in values if value is not None)
    named = [value for value, _ in counts.most_common(MOST_VALUES)]
    code_of = {value: code for code, value in enumerate(named)}
    codes = np.array([code_of.get(values[place], -1) for place in places], dtype="<i4")
    return {"field": field, "values": named, "codes": _encoded(codes)}


def _labels(head: Head, found: Labels) -> dict[str, Any]:
    counts = np.bincount(found.outputs[found.outputs >= 0], minlength=len(head.labels))
    order = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
    # the last place is that of documents without a label
    code_of = np.full(len(head.labels) + 1, -1, dtype="<i4")
    code_of[order] = np.arange(len(order))
    return {
        "classifier": head.name,
        "labels": [head.labels[output] for output in order],
        "codes": _encoded(code_of[found.outputs]),
        "scores": _encoded(found.scores.astype("<f4")),
        "pending": found.pending,
    }


def _encoded(values: NDArray[Any]) -> str:
    return base64.b64encode(values.tobytes()).decode()


def _topics(current: Current) -> TopicsOut:
    topics = []
    for number, topic in enumerate(current.map.topics):
        own = current.positions[current.topic == number]
        centre = own.mean(axis=0).tolist() if len(own) else None
        topics.append(
            {
                "topic": number,
                "name": ", ".join(topic.words[:3]),
                "words": topic.words,
                "size": len(own),
                "centre": centre,
                "examples": topic.examples,
            }
        )
    without = int((current.topic < 0).sum())
    return TopicsOut.model_validate(_head(current) | {"topics": topics, "without": without})
