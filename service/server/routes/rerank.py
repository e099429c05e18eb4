"""POST /rerank: texts by their relevance to a query, in the formats of TEI and of Cohere."""

from __future__ import annotations

import math
import uuid
from typing import Annotated, Any, NamedTuple

import numpy as np
from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    WithJsonSchema,
)

from docsplit.windowing.pooling import normalise
from service.embedding.embedder import Embedded
from service.embedding.reranker import best
from service.server.bodies.encoding import json_response
from service.server.bodies.fields import TEXT, CutSide, Flag, ModelName, valid_text, valid_texts
from service.server.bodies.large import BoundedRoute
from service.server.edge.errors import CohereError, written
from service.server.encoder import Encoder
from service.server.routes import inference

router = APIRouter(route_class=BoundedRoute, tags=["rerank"])

Query = Annotated[str, BeforeValidator(valid_text), TEXT]


class TextsRequest(BaseModel):
    """TEI's request."""

    model_config = ConfigDict(strict=True)

    query: Query = Field(description="a text; a re-ranker limits its length")
    texts: Annotated[list[str], BeforeValidator(valid_texts)] = Field(
        min_length=1, description="the texts to rank, of any length"
    )
    raw_scores: bool = Field(
        False, description="cosines, or outputs of the re-ranker, in place of scores from 0 to 1"
    )
    return_text: bool = Field(False, description="add the texts to the answer")
    truncate: Flag = Field(
        False, description="keep only one window of each text, and what fits of the query"
    )
    truncation_direction: CutSide = Field("right", description="the side that truncate cuts off")
    model: ModelName = None


def _contents(value: Any) -> list[str]:
    """Texts of documents, each a string or an object with `text`."""
    if not isinstance(value, list):
        raise ValueError("give a list of strings")
    for place, one in enumerate(value):
        if isinstance(one, dict) and "text" not in one:
            raise ValueError(f"item {place}: give a string, or an object with text")
    return valid_texts([one["text"] if isinstance(one, dict) else one for one in value])


_DOCUMENT = {
    "anyOf": [
        {"type": "string", "minLength": 1},
        {
            "type": "object",
            "properties": {"text": {"type": "string", "minLength": 1}},
            "required": ["text"],
        },
    ]
}


class DocumentsRequest(BaseModel):
    """Cohere's request; `max_tokens_per_doc`, `rank_fields` and other fields are ignored."""

    model_config = ConfigDict(strict=True)

    query: Query = Field(description="a text; a re-ranker limits its length")
    documents: Annotated[
        list[str],
        BeforeValidator(_contents),
        WithJsonSchema({"type": "array", "items": _DOCUMENT, "minItems": 1}),
    ] = Field(min_length=1, description="strings, or objects with `text`, of any length")
    model: str | None = Field(
        None, description="the name of the bundle or the re-ranker that ranks, or an alias"
    )
    top_n: int | None = Field(None, ge=1, description="most results; all by default")
    return_documents: Flag = Field(False, description="add the documents to the answer")


def _shape(body: Any) -> str:
    # no names of fields: the place of an error would begin with them
    if isinstance(body, dict):
        return "Cohere" if "documents" in body and "texts" not in body else "TEI"
    return "Cohere" if isinstance(body, DocumentsRequest) else "TEI"


EitherRequest = Annotated[
    Annotated[TextsRequest, Tag("TEI")] | Annotated[DocumentsRequest, Tag("Cohere")],
    Discriminator(_shape),
]


class RankOut(BaseModel):
    """A text in TEI's answer."""

    index: int = Field(description="position of the text in the request")
    score: float
    text: str | None = Field(None, description="absent without `return_text`")


class RankedText(BaseModel):
    """The content of a document."""

    text: str


class ResultOut(BaseModel):
    """A document in Cohere's answer."""

    index: int = Field(description="position of the document in the request")
    relevance_score: float
    document: RankedText | None = Field(None, description="absent without `return_documents`")


class ApiVersion(BaseModel):
    """The version of Cohere's interface."""

    version: str


class TokensOut(BaseModel):
    """Tokens that the model read, special tokens included."""

    input_tokens: int


class MetaOut(BaseModel):
    """Facts about the request."""

    api_version: ApiVersion
    tokens: TokensOut


class ResultsOut(BaseModel):
    """Cohere's answer, highest score first."""

    id: str
    results: list[ResultOut]
    meta: MetaOut


_STATUSES = (400, 401, 404, 408, 413, 415, 422, 429, 500, 503)
_SAID = "Highest score first, in the form of the request."
_COHERE = written(ResultsOut, *_STATUSES, dialect=CohereError)


@router.post("/rerank", **written(list[RankOut] | ResultsOut, *_STATUSES, said=_SAID))
async def rerank(request: Request, body: EitherRequest) -> Response:
    """Texts by their relevance to a query: the score of a text's best window.

    The re-ranker scores windows, if the service has one; otherwise a score is the cosine to the
    query. With `texts` the request and the answer have TEI's form, with `documents` Cohere's.
    """
    if isinstance(body, DocumentsRequest):
        return await rerank_documents(request, body)
    # a re-ranker ranks whatever bundle the request names
    named = None if inference.service_of(request).reranking is not None else body.model
    encoder = inference.encoder_of(request, named)
    result = await _ranking(request, encoder, "texts", body.query, body.texts, body)
    ranked = [
        {
            "index": one.place,
            "score": one.raw if body.raw_scores else one.score,
            **({"text": body.texts[one.place]} if body.return_text else {}),
        }
        for one in result.ranked
    ]
    return json_response(ranked, result.headers)


@router.post("/v2/rerank", **_COHERE)
@router.post("/v1/rerank", **_COHERE)
async def rerank_documents(request: Request, body: DocumentsRequest) -> Response:
    """Documents by their relevance to a query, in Cohere's form."""
    service = inference.service_of(request)
    encoder = service.encoders.default
    if body.model is not None:
        encoder = inference.ranking_encoder(service, body.model)
    result = await _ranking(request, encoder, "documents", body.query, body.documents)
    results = [
        {
            "index": one.place,
            "relevance_score": one.score,
            **({"document": {"text": body.documents[one.place]}} if body.return_documents else {}),
        }
        for one in result.ranked[: body.top_n]
    ]
    version = "1" if request.url.path.startswith("/v1/") else "2"
    meta = {"api_version": {"version": version}, "tokens": {"input_tokens": result.tokens}}
    content = {"id": str(uuid.uuid4()), "results": results, "meta": meta}
    return json_response(content, result.headers)


def relevance(cosine: float) -> float:
    """A cosine as a score from 0 to 1, in the same order."""
    return (1 + cosine) / 2


class Ranked(NamedTuple):
    """A text: its position, its score from 0 to 1, and the value that the score comes from."""

    place: int
    score: float
    raw: float


class Ranking(NamedTuple):
    """Texts, the best first, the tokens that the model read, and headers of the answer."""

    ranked: list[Ranked]
    tokens: int
    headers: dict[str, str]


async def _ranking(
    request: Request,
    encoder: Encoder,
    field: str,
    query: str,
    texts: list[str],
    options: TextsRequest | None = None,
) -> Ranking:
    """Rank the texts. An error names the text by its field and position."""
    truncate = options is not None and options.truncate
    side = "right" if options is None else options.truncation_direction
    reranker = (await inference.running_of(inference.service_of(request))).reranker
    with inference.naming(lambda place: f"{field}.{place - 1}" if place else "query"):
        if reranker is None:
            result = await inference.embed(
                request, [query, *texts], truncate=truncate, side=side, encoder=encoder
            )
            ranked = _by_cosine(result)
        else:
            result = await inference.score(
                request, reranker, query, texts, truncate=truncate, side=side
            )
            ranked = _by_reranker(result)
    tokens = result.computed
    ranked.sort(key=lambda one: -one.raw)
    return Ranking(ranked, tokens, inference.headers(request, result))


def _by_cosine(result: Embedded) -> list[Ranked]:
    """Scores of the texts after the query."""
    query, *texts = result.documents
    vector = normalise(query.vector())
    cosines = [float(np.clip((text.matrix() @ vector).max(), -1, 1)) for text in texts]
    return [Ranked(place, relevance(cosine), cosine) for place, cosine in enumerate(cosines)]


def _by_reranker(result: Embedded) -> list[Ranked]:
    outputs = [best(document) for document in result.documents]
    return [Ranked(place, logistic(output), output) for place, output in enumerate(outputs)]


def logistic(output: float) -> float:
    """A re-ranker's output as a score from 0 to 1, in the same order."""
    # without overflow for large outputs of either sign
    return (1 + math.tanh(output / 2)) / 2
