"""POST /embed, / and /similarity: vectors of whole documents and their cosines, as TEI has them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Self

import numpy as np
import orjson
from fastapi import APIRouter, Request
from fastapi.responses import Response
from numpy.typing import NDArray
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    ModelWrapValidatorHandler,
    Tag,
    model_validator,
)

from docsplit.windowing.pooling import shorten
from service import executors
from service.embedding.embedder import Document, Embedded
from service.errors import InvalidError
from service.server.bodies.encoding import (
    ARROW,
    EncodingFormat,
    arrow_stream,
    encode,
    encode_each,
    json_list,
    json_response,
    writing,
)
from service.server.bodies.fields import (
    CutSide,
    Flag,
    Inputs,
    ModelName,
    valid_text,
    valid_texts,
)
from service.server.bodies.large import BoundedRoute
from service.server.edge.bodies import NDJSON, sends_lines
from service.server.edge.errors import documented, written
from service.server.edge.layer import repeatable
from service.server.lines import (
    DOCUMENTED,
    NAMES,
    RESULTS,
    LineOptions,
    lines_of_body,
    lines_of_texts,
)
from service.server.routes import inference
from service.unknown import field_names, meant

if TYPE_CHECKING:
    from service.server.encoder import Encoder


class EmbedRoute(BoundedRoute):
    """``/embed``, whose body may also be lines of JSON."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handler(request: Request) -> Response:
            if sends_lines(request.scope):
                return lines_of_body(request, LineOptions.of_query(request))
            for name in NAMES.intersection(request.query_params):
                raise InvalidError(f"query.{name}: only for {NDJSON}; put it into the body", name)
            if "windows" in request.query_params:
                raise InvalidError("query.windows: put it into the body", "windows")
            return await handle(request)

        return handler


router = APIRouter(route_class=EmbedRoute, tags=["embed"])
# without lines
_plain = APIRouter(route_class=BoundedRoute)

DETAILED = "application/vnd.docsplit+json"


class Pairs(BaseModel):
    """One text, and the texts to compare it with."""

    model_config = ConfigDict(strict=True)

    source_sentence: Annotated[str, BeforeValidator(valid_text)]
    sentences: Annotated[list[str], BeforeValidator(valid_texts)] = Field(min_length=1)


class Parameters(BaseModel):
    """TEI's place for the options."""

    model_config = ConfigDict(strict=True)

    truncate: Flag = False
    truncation_direction: CutSide = "right"
    prompt_name: str | None = None


class SimilarityRequest(Parameters):
    """Texts to compare; they may be whole documents."""

    inputs: Pairs
    parameters: Parameters | None = Field(
        None, description="the options, in place of those at the top"
    )
    model: ModelName = None


class EmbedRequest(BaseModel):
    """The documents to embed, and options."""

    model_config = ConfigDict(strict=True)

    inputs: Inputs = Field(description="a document or a list of documents, of any length")
    normalize: bool = Field(
        True,
        description="scale each vector to unit length; without it, a document of several windows "
        "gets the plain weighted mean of its unit window vectors",
    )
    truncate: Flag = Field(
        False, description="keep only the part of each document that fits one window"
    )
    truncation_direction: CutSide = Field("right", description="the side that truncate cuts off")
    dimensions: int | None = Field(
        None, ge=1, description="keep only the first components; the vectors are renormalised"
    )
    encoding_format: EncodingFormat = Field(
        "float", description="JSON numbers, base64 of little-endian float32, or smaller numbers"
    )
    windows: bool = Field(
        False, description="answer with an object that shows the windows of each document"
    )
    prompt_name: str | None = Field(None, description="a prompt of the model, see /info")
    model: ModelName = None
    _meant: str | None = None

    @model_validator(mode="wrap")
    @classmethod
    def _notice(cls, body: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        made = handler(body)
        if isinstance(body, dict):
            made._meant = meant(body, field_names(cls))
        return made

    @property
    def advice(self) -> dict[str, str]:
        """A header with the option that an ignored one seems to mean: clients of other services
        send options of their own, so none is refused."""
        return {} if self._meant is None else {"x-did-you-mean": self._meant}


def _shape(body: Any) -> str:
    inputs = body.get("inputs") if isinstance(body, dict) else None
    similar = isinstance(inputs, dict) or isinstance(body, SimilarityRequest)
    return "similarity" if similar else "embed"


EitherRequest = Annotated[
    Annotated[EmbedRequest, Tag("embed")] | Annotated[SimilarityRequest, Tag("similarity")],
    Discriminator(_shape),
]


class WindowOut(BaseModel):
    """A window of a document; offsets count Unicode code points of the input."""

    start: int
    end: int
    tokens: int
    weight: float = Field(description="its share in the document's vector")
    embedding: list[float] | str


class UsageOut(BaseModel):
    """The tokens of a document."""

    tokens: int = Field(description="tokens of the whole document, without special tokens")
    used_tokens: int = Field(description="how many of these the vector represents")
    unknown_tokens: int = Field(description="how many of `tokens` the vocabulary lacks")
    windows: int
    cached_windows: int
    truncated: bool


class DetailedOut(BaseModel):
    """Vectors with their windows."""

    model: str
    revision: str
    embeddings: list[list[float] | str]
    windows: list[list[WindowOut]]
    usage: list[UsageOut]


_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "One vector per document; or, with `windows` or the docsplit media type, "
        "an object.",
        "model": list[list[float] | str] | DetailedOut,
        "content": {
            DETAILED: {"schema": {"$ref": "#/components/schemas/DetailedOut"}},
            NDJSON: {"schema": {"anyOf": RESULTS}},
            ARROW: {"schema": {"type": "string", "format": "binary"}},
        },
    },
    **documented(400, 401, 404, 408, 413, 415, 422, 429, 500, 503),
}


@router.post(
    "/embed",
    responses=_ANSWERS,
    response_model=None,
    response_class=Response,
    openapi_extra=DOCUMENTED,
)
async def embed(request: Request, body: EmbedRequest) -> Response:
    """Vectors of whole documents. Only `truncate` shortens a document."""
    encoder = inference.encoder_of(request, body.model)
    inference.check_dimensions(encoder, body.dimensions)
    texts = [body.inputs] if isinstance(body.inputs, str) else body.inputs
    accept = request.headers.get("accept", "").lower()
    if NDJSON in accept:
        return _by_lines(request, body, texts)
    as_arrow = ARROW in accept
    if as_arrow and (body.windows or body.encoding_format == "base64"):
        raise InvalidError("encoding_format, windows: an Arrow stream has only rows of numbers")
    result = await inference.embed(
        request,
        texts,
        prompt_name=body.prompt_name,
        truncate=body.truncate,
        side=body.truncation_direction,
        encoder=encoder,
    )
    headers = inference.headers(request, result) | body.advice
    detailed = DETAILED in accept
    if detailed or body.windows:
        media_type = DETAILED if detailed else None
        # thousands of windows take a second
        return await executors.BODIES.run(
            lambda: json_response(_detailed(encoder, body, result), headers, media_type)
        )
    repeatable(request.scope)
    vectors = _vectors(body, result)
    if as_arrow:
        rows = encode(vectors, body.encoding_format)
        table = await executors.BODIES.run(arrow_stream, rows)
        return Response(table, headers=headers, media_type=ARROW)
    async with writing(vectors):
        answer = await json_list(encode_each(vectors, body.encoding_format))
    return json_response(answer, headers)


def _by_lines(request: Request, body: EmbedRequest, texts: Sequence[str]) -> Response:
    if body.windows:
        raise InvalidError("windows: answers by lines have none; ask for JSON", "windows")
    options = LineOptions.model_validate(body, from_attributes=True)
    return lines_of_texts(request, texts, options)


_EITHER: dict[int | str, dict[str, Any]] = {
    **_ANSWERS,
    200: {
        "description": "The answer of `/embed` or of `/similarity`.",
        "model": list[float] | list[list[float] | str] | DetailedOut,
    },
}


@router.post("/", responses=_EITHER, response_model=None, response_class=Response)
async def root(request: Request, body: EitherRequest) -> Response:
    """`/embed`, or `/similarity` if `inputs` is an object: hub clients post both here."""
    if isinstance(body, SimilarityRequest):
        return await similarity(request, body)
    return await embed(request, body)


def _vectors(body: EmbedRequest, result: Embedded) -> NDArray[np.float32]:
    return inference.vectors(result, unit=body.normalize, dimensions=body.dimensions)


def _detailed(encoder: Encoder, body: EmbedRequest, result: Embedded) -> dict[str, Any]:
    return {
        "model": encoder.name,
        "revision": encoder.revision,
        "embeddings": encode(_vectors(body, result), body.encoding_format),
        "windows": [_windows(body, document) for document in result.documents],
        "usage": [
            {
                "tokens": document.tokens,
                "used_tokens": document.used,
                "unknown_tokens": document.unknown,
                "windows": len(document.windows),
                "cached_windows": document.cached,
                "truncated": document.truncated,
            }
            for document in result.documents
        ],
    }


def _windows(body: EmbedRequest, document: Document) -> orjson.Fragment:
    """JSON of one document's windows, because orjson lets no other thread work meanwhile."""
    matrix = document.matrix()
    if body.dimensions is not None:
        matrix = shorten(matrix, body.dimensions)
    every = sum(window.weight for window in document.windows)
    windows = [
        {
            "start": window.start,
            "end": window.end,
            "tokens": window.tokens,
            "weight": window.weight / every,
            "embedding": vector,
        }
        for window, vector in zip(
            document.windows, encode(matrix, body.encoding_format), strict=True
        )
    ]
    return orjson.Fragment(orjson.dumps(windows, option=orjson.OPT_SERIALIZE_NUMPY))


_STATUSES = (400, 401, 404, 408, 413, 415, 422, 429, 500, 503)
_COSINES = "Cosine of the source to each sentence, in their order."


@_plain.post("/similarity", **written(list[float], *_STATUSES, said=_COSINES))
async def similarity(request: Request, body: SimilarityRequest) -> Response:
    """Cosine similarity of `source_sentence` to each of `sentences`."""
    texts = [body.inputs.source_sentence, *body.inputs.sentences]
    options = body.parameters or body
    with inference.naming(_place_of):
        result = await inference.embed(
            request,
            texts,
            prompt_name=options.prompt_name,
            truncate=options.truncate,
            side=options.truncation_direction,
            encoder=inference.encoder_of(request, body.model),
        )
    vectors = inference.vectors(result)
    return json_response(vectors[1:] @ vectors[0], inference.headers(request, result))


def _place_of(position: int) -> str:
    return f"inputs.sentences.{position - 1}" if position else "inputs.source_sentence"


router.include_router(_plain)
