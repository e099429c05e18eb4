"""/aliases: other names of indexes, which can be switched from one index to another."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from service.errors import NotFoundError
from service.keys.file import Right
from service.server.bodies.body import Body
from service.server.bodies.large import BodyRoute
from service.server.bodies.names import INDEX_NAME, Name
from service.server.edge import deadline, rights
from service.server.edge.errors import documented
from service.server.routes import inference

router = APIRouter(route_class=BodyRoute, prefix="/aliases", tags=["index"])


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


_READ = documented(401, 404, 409, 422, 503)
_PUT = {
    200: {"description": "The alias existed; it names this index now."},
    201: {"description": "Created.", "model": AliasOut},
    **documented(400, 401, 404, 408, 409, 413, 415, 422, 503),
}


@router.put("/{alias}", responses=_PUT)
async def put_alias(
    request: Request, response: Response, alias: Name, body: AliasRequest
) -> AliasOut:
    """Create an alias of an index, or switch it to another index in one step.

    The key needs the right to write to the index, to the one that the alias named before, and to
    the alias's own name.
    """
    rights.require(request, Right.WRITE_INDEXES, alias)
    rights.require(request, Right.WRITE_INDEXES, body.index)
    async with deadline.within(request):
        indexes = await inference.service_of(request).store.indexes()
        from service.index.rows.aliases import switch

        former = (await indexes.aliases.all()).get(alias)
        if former is not None:
            rights.require(request, Right.WRITE_INDEXES, former)
        await switch(indexes, alias, body.index, former)
    response.status_code = 201 if former is None else 200
    return AliasOut(alias=alias, index=body.index)


@router.get("", responses=documented(401, 422, 503))
async def list_aliases(request: Request) -> AliasesOut:
    """All aliases of indexes that the key may read or write."""
    async with deadline.within(request):
        indexes = await inference.service_of(request).store.indexes()
        held = await indexes.aliases.all()
    known = {*rights.seen(request, held.values(), Right.READ_INDEXES, Right.WRITE_INDEXES)}
    return AliasesOut(
        aliases=[AliasOut(alias=alias, index=name) for alias, name in held.items() if name in known]
    )


@router.get("/{alias}", responses=_READ)
async def get_alias(request: Request, alias: Name) -> AliasOut:
    """The index that an alias names."""
    for one in (await list_aliases(request)).aliases:
        if one.alias == alias:
            return one
    raise _no_alias()


@router.delete("/{alias}", status_code=204, responses=_READ)
async def delete_alias(request: Request, alias: Name) -> None:
    """Remove an alias. Its index stays. The key needs the right to write to both names."""
    rights.require(request, Right.WRITE_INDEXES, alias)
    async with deadline.within(request):
        indexes = await inference.service_of(request).store.indexes()
        from service.index.rows.aliases import switch

        former = (await indexes.aliases.all()).get(alias)
        if former is None:
            raise _no_alias()
        rights.require(request, Right.WRITE_INDEXES, former)
        await switch(indexes, alias, None, former)


def _no_alias() -> NotFoundError:
    return NotFoundError("there is no alias of that name; GET /aliases lists all")
