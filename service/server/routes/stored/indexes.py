"""/indexes and /aliases: indexes of documents, and other names of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Request, Response
from pydantic import BaseModel, BeforeValidator, Field

from service.errors import NotFoundError
from service.index.rows.fields import FieldType
from service.keys.file import Right
from service.server.bodies.fields import FIELD_NAME, INDEX_NAME, REVISION, Body, Name
from service.server.bodies.large import BoundedRoute
from service.server.edge import rights
from service.server.edge.errors import documented
from service.server.routes import inference

if TYPE_CHECKING:
    from service.index.profiles import Fitted

_indexes = APIRouter(
    route_class=BoundedRoute,
    prefix="/indexes",
    tags=["index"],
    dependencies=[Depends(rights.of_index)],
)
_aliases = APIRouter(route_class=BoundedRoute, prefix="/aliases", tags=["index"])

FieldName = Annotated[str, Field(pattern=FIELD_NAME)]
Revision = Annotated[
    str,
    Path(
        pattern=REVISION,
        description="revision of the bundle that embedded it: whole, or its first 12 digits",
    ),
]

ERRORS = documented(400, 401, 404, 408, 409, 413, 415, 422, 503)


MOST_FIELDS = 64


def _few(value: Any) -> Any:
    """Refuse too many fields before validating any of them."""
    if isinstance(value, dict) and len(value) > MOST_FIELDS:
        raise ValueError(f"{len(value)} fields; the limit is {MOST_FIELDS}")
    return value


class IndexRequest(Body):
    """The definition of an index."""

    fields: Annotated[dict[FieldName, FieldType], BeforeValidator(_few)] = Field(
        default_factory=dict,
        max_length=MOST_FIELDS,
        description="metadata that filters may name, with its type; other metadata is stored too",
    )
    model: str | None = Field(
        None,
        description="the bundle that embeds its documents: a name of GET /v1/models; the first "
        "one by default",
    )


class GenerationOut(BaseModel):
    """The documents of an index that one bundle has embedded."""

    revision: str
    documents: int
    state: Literal["complete", "building"]
    current: bool = Field(description="whether this is the served bundle")


class ProgressOut(BaseModel):
    """The progress of the served bundle's generation, whichever process fills it."""

    done: int
    total: int
    rate: float = Field(description="documents a second over the last two minutes")
    seconds_left: float | None = Field(description="at this rate; null while it is 0")


class AdaptationOut(BaseModel):
    """How much better first halves of documents find their second halves by adapted cosine."""

    used: bool = Field(
        description="whether searches use it: low is above zero, and links do not speak against it"
    )
    documents: int = Field(description="of the index when the profile was fitted")
    halves: int = Field(description="documents that were split")
    raw: float = Field(description="mean reciprocal rank by cosine")
    adapted: float = Field(description="mean reciprocal rank by adapted cosine")
    gain: float = Field(description="the difference")
    low: float = Field(description="lower end of its 95 % interval")
    high: float = Field(description="upper end")


class IndexHead(BaseModel):
    """An index, without the fields that only readers of the index may see."""

    name: str
    model: str = Field(description="the bundle that it records")
    revision: str = Field(description="of the vectors that answer")
    served_by: str | None = Field(
        description="the served bundle that embeds its texts; null if its bundle is not served, "
        "then requests that need the bundle answer 409"
    )
    current: bool = Field(
        description="whether the served bundle answers; if not, the index is being re-embedded"
    )
    fields: dict[str, FieldType]


class IndexOut(IndexHead):
    """An index."""

    documents: int
    generations: list[GenerationOut]
    adaptation: AdaptationOut | None = Field(description="null until a profile is fitted")
    progress: ProgressOut | None = Field(description="while the index is being re-embedded")


class IndexesOut(BaseModel):
    """The names of all indexes."""

    indexes: list[str]


_PUT: dict[int | str, dict[str, Any]] = {
    200: {"description": "The index existed already, with the same fields."},
    201: {"model": IndexOut | IndexHead, "description": "Created."},
    **ERRORS,
}


@_indexes.put("/{name}", responses=_PUT)
async def create_index(
    request: Request, response: Response, name: Name, body: IndexRequest
) -> IndexOut | IndexHead:
    """Create an index, or accept an existing one with the same fields.

    A key without the right to read the index gets no counts of documents.
    """
    rights.refuse_alias(request)
    service = inference.service_of(request)
    model = None if body.model is None else service.encoders.named(body.model).name
    indexes = await service.store.indexes()
    response.status_code = 201 if await indexes.create(name, body.fields, model) else 200
    whole = await describe_index(request, name)
    if rights.may(request, Right.READ_INDEXES, name):
        return whole
    return IndexHead(**whole.model_dump(include=set(IndexHead.model_fields)))


@_indexes.get("", responses=documented(401, 422, 503))
async def list_indexes(request: Request) -> IndexesOut:
    """Names of all indexes that the key may read or write."""
    indexes = await inference.service_of(request).store.indexes()
    names = await indexes.names()
    return IndexesOut(indexes=rights.seen(request, names, Right.READ_INDEXES, Right.WRITE_INDEXES))


@_indexes.get("/{name}", responses=documented(401, 404, 409, 422, 503))
async def describe_index(request: Request, name: Name) -> IndexOut:
    """The number of documents of an index, its model, fields and generations."""
    store = inference.service_of(request).store
    indexes = await store.indexes()
    generations = await indexes.generations(name, still=True)
    counts = [await generation.index.count() for generation in generations]
    own = indexes.served.own(generations)
    served = indexes.served.of(generations)
    current = own is not None and own.complete
    shown = indexes.served.answering(generations) or generations[0]
    fitted = await indexes.profiles.get(shown.index)
    out = [
        GenerationOut(
            revision=generation.index.identity.revision,
            documents=count,
            state="complete" if generation.complete else "building",
            current=generation is own,
        )
        for generation, count in zip(generations, counts, strict=True)
    ]
    total = max(o.documents for o in out if o.state == "complete")
    done = min(sum(o.documents for o in out if o.current), total)
    rate, seconds_left = store.pace(name)
    progress = ProgressOut(done=done, total=total, rate=rate, seconds_left=seconds_left)
    identity = shown.index.identity
    return IndexOut(
        name=name,
        documents=counts[generations.index(shown)],
        model=identity.model,
        revision=identity.revision,
        served_by=None if served is None else served.name,
        current=current,
        fields=identity.fields,
        generations=out,
        adaptation=_adaptation(fitted),
        progress=None if current or served is None else progress,
    )


def _adaptation(fitted: Fitted | None) -> AdaptationOut | None:
    if fitted is None:
        return None
    gain = fitted.gain
    return AdaptationOut(
        used=fitted.profile is not None,
        documents=fitted.documents,
        halves=gain.halves,
        raw=gain.raw,
        adapted=gain.adapted,
        gain=gain.difference,
        low=gain.difference - gain.error,
        high=gain.difference + gain.error,
    )


@_indexes.delete(
    "/{name}/generations/{revision}",
    status_code=204,
    responses=documented(401, 404, 409, 422, 503),
)
async def delete_generation(request: Request, name: Name, revision: Revision) -> None:
    """Delete another bundle's generation, after copying what the served generation still lacks."""
    service = inference.service_of(request)
    await inference.running_of(service)
    await service.store.drop_generation(name, revision, service.encoders.reembedder)


@_indexes.delete("/{name}", status_code=204, responses=documented(401, 404, 409, 422, 503))
async def delete_index(request: Request, name: Name) -> None:
    """Delete an index with all its documents."""
    rights.refuse_alias(request)
    await inference.service_of(request).store.drop(name)


class AliasRequest(Body):
    """The index that the alias names."""

    index: Annotated[str, Field(pattern=INDEX_NAME)] = Field(description="the index's own name")


class AliasOut(BaseModel):
    """An alias and its index."""

    alias: str
    index: str


class AliasesOut(BaseModel):
    """All aliases."""

    aliases: list[AliasOut]


_ALIAS_ERRORS = documented(401, 404, 409, 422, 503)
_PUT_ALIAS = {
    200: {"description": "The alias existed; it names this index now."},
    201: {"description": "Created.", "model": AliasOut},
    **documented(400, 401, 404, 408, 409, 413, 415, 422, 503),
}


@_aliases.put("/{alias}", responses=_PUT_ALIAS)
async def put_alias(
    request: Request, response: Response, alias: Name, body: AliasRequest
) -> AliasOut:
    """Create an alias of an index, or switch it to another index in one step.

    The key needs the right to write to the index, to the one that the alias named before, and to
    the alias's own name.
    """
    rights.require(request, Right.WRITE_INDEXES, alias)
    rights.require(request, Right.WRITE_INDEXES, body.index)
    indexes = await inference.service_of(request).store.indexes()
    from service.index.rows.keyed import switch

    former = (await indexes.aliases.all()).get(alias)
    if former is not None:
        rights.require(request, Right.WRITE_INDEXES, former)
    await switch(indexes, alias, body.index, former)
    response.status_code = 201 if former is None else 200
    return AliasOut(alias=alias, index=body.index)


@_aliases.get("", responses=documented(401, 422, 503))
async def list_aliases(request: Request) -> AliasesOut:
    """All aliases of indexes that the key may read or write."""
    indexes = await inference.service_of(request).store.indexes()
    held = await indexes.aliases.all()
    known = {*rights.seen(request, held.values(), Right.READ_INDEXES, Right.WRITE_INDEXES)}
    return AliasesOut(
        aliases=[AliasOut(alias=alias, index=name) for alias, name in held.items() if name in known]
    )


@_aliases.get("/{alias}", responses=_ALIAS_ERRORS)
async def get_alias(request: Request, alias: Name) -> AliasOut:
    """The index that an alias names."""
    for one in (await list_aliases(request)).aliases:
        if one.alias == alias:
            return one
    raise _no_alias()


@_aliases.delete("/{alias}", status_code=204, responses=_ALIAS_ERRORS)
async def delete_alias(request: Request, alias: Name) -> None:
    """Remove an alias. Its index stays. The key needs the right to write to both names."""
    rights.require(request, Right.WRITE_INDEXES, alias)
    indexes = await inference.service_of(request).store.indexes()
    from service.index.rows.keyed import switch

    former = (await indexes.aliases.all()).get(alias)
    if former is None:
        raise _no_alias()
    rights.require(request, Right.WRITE_INDEXES, former)
    await switch(indexes, alias, None, former)


def _no_alias() -> NotFoundError:
    return NotFoundError("there is no alias of that name; GET /aliases lists all")


router = APIRouter()
router.include_router(_indexes)
router.include_router(_aliases)
