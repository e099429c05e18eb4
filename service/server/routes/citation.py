"""/indexes/{name}/citation: the head that predicts citations."""

from __future__ import annotations

import time
import uuid
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from fastapi import Request
from fastapi.responses import Response
from pydantic import BaseModel, Field

from service import executors
from service.errors import ConflictError, InvalidError, NotFoundError
from service.keys.file import Right
from service.server.bodies.fields import Name, Source
from service.server.edge import deadline, rights
from service.server.edge.errors import documented
from service.server.routes import inference
from service.server.routes.turns import TURN

Inputs = Literal["features", "vectors"]

if TYPE_CHECKING:
    from service.index.documents import Index
    from service.learning.heads import Head

router = rights.below_index("/citation")


class CitationOut(BaseModel):
    """A citation head, and its quality on citing documents held out of its training."""

    links: int = Field(description="links between documents of the index")
    citing: int = Field(description="documents with at least one link")
    # former heads, and those of bundles, read vectors
    inputs: Inputs = Field("vectors", description="what the head reads of a pair")
    links_from: Source = Field(
        "given", description="whose links count: given by users, found in texts, or both"
    )
    links_used: int = Field(description="links to candidates, of those tested")
    citing_used: int = Field(description="citing documents of these links")
    held_out: int = Field(description="citing documents held out for the two measures")
    mrr: float = Field(
        description="mean reciprocal rank of the first cited document among a held-out "
        "document's candidates"
    )
    hybrid_mrr: float = Field(
        description="the same measure for the candidates' order by reciprocal rank fusion"
    )
    training_seconds: float


@router.post("", responses=documented(401, 404, 408, 409, 413, 415, 422, 503))
async def train_citation_head(
    request: Request, name: Name, inputs: Inputs = "features", links: Source = "given"
) -> CitationOut:
    """Train the index's citation head on the links of its documents; replace a former head.

    The answer contains numbers of links, so the key must also have the right to read the index.
    """
    rights.require(request, Right.READ_INDEXES, name)
    service = inference.service_of(request)
    async with TURN.taken():
        indexes = await service.store.indexes()
        index = await indexes.open(name)
        from docsplit.heads.citation import learn
        from service.index.link_graph import Graph
        from service.learning.citations import examples

        started = time.monotonic()
        searches, total, citing = await examples(Graph(index, indexes.found_links, links))
        try:
            learnt = await executors.TRAINING.run_stoppable(
                partial(learn, searches, total, citing, deadline.of(request), inputs=inputs)
            )
        except ValueError as error:
            raise InvalidError(str(error), "links") from error
        seconds = time.monotonic() - started
        report = learnt.report | {"links_from": links, "training_seconds": seconds}
        from service.learning.heads import Head

        uid = index.identity.uid
        revision = index.identity.revision
        head = Head(uid, uuid.uuid4().hex, revision, learnt.labels, report, learnt.network)
        await (await service.heads.citation_heads()).put(head)
    return CitationOut(**report)


@router.get("", responses=documented(401, 404, 409, 422, 503))
async def describe_citation_head(request: Request, name: Name) -> CitationOut:
    """The measurements from the training of the index's citation head."""
    _, head = await open_citing(request, name)
    return CitationOut(**head.report)


_NETWORK: dict[int | str, Any] = {
    200: {
        "description": "An .npz archive.",
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    },
    **documented(401, 404, 409, 422, 503),
}


@router.get("/network", responses=_NETWORK, response_model=None, response_class=Response)
async def download_citation_network(request: Request, name: Name) -> Response:
    """The citation head's weights, to use elsewhere."""
    _, head = await open_citing(request, name)
    if head.bundled:
        raise ConflictError("the index uses the bundle's citation head: copy it from the bundle")
    return Response(head.network.to_bytes(), media_type="application/octet-stream")


async def open_citing(request: Request, name: str) -> tuple[Index, Head]:
    """An index and its citation head: of the former bundle until the head is trained again.

    Raises:
        ServiceError: as for ``citation_head``.
    """
    index = await inference.open_index(request, name)
    try:
        return index, await citation_head(request, index, name)
    except ConflictError:
        kept = await (await inference.service_of(request).store.indexes()).kept(name, still=True)
        if kept is None:
            raise
        request.scope["docsplit.revision"] = kept.identity.revision
        return kept, await citation_head(request, kept, name)


async def citation_head(request: Request, index: Index, name: str) -> Head:
    """The citation head of an index, else the bundle's.

    Raises:
        NotFoundError: there is none; the message names the call that trains one.
        ConflictError: it was trained on another generation's vectors.
    """
    heads = await inference.service_of(request).heads.citation_heads()
    hint = f"train it again with POST /indexes/{name}/citation"
    try:
        return await heads.current(index.identity.uid, [index.identity.revision], hint)
    except NotFoundError as error:
        brought = heads.bundled_head(index.identity.revision)
        if brought is not None:
            return brought
        raise NotFoundError(
            f"the index has no citation head: train one with POST /indexes/{name}/citation"
        ) from error
