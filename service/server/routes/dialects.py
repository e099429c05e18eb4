"""POST /v1/embeddings, GET /v1/models and POST /v2/embed: the dialects of OpenAI and of Cohere.

OpenAI's has the fields that Jina adds.
"""

from __future__ import annotations

import uuid
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from service.embedding.prompts import for_purpose
from service.errors import NotFoundError
from service.server.bodies.encoding import (
    EncodingFormat,
    encode_each,
    json_list,
    json_response,
    writing,
)
from service.server.bodies.fields import TEXT, Inputs, valid_text, valid_texts
from service.server.bodies.large import BoundedRoute
from service.server.edge.errors import CohereError, OpenAIError, documented, written
from service.server.edge.layer import repeatable
from service.server.routes import inference
from service.server.routes.rerank import MetaOut

_openai = APIRouter(route_class=BoundedRoute, prefix="/v1", tags=["openai"])
_cohere = APIRouter(route_class=BoundedRoute, prefix="/v2", tags=["cohere"])

# Jina's tasks, and the purpose of each
_OF_JINA = {
    "retrieval.query": "query",
    "retrieval.passage": "document",
    "classification": "classification",
    "separation": "clustering",
    "clustering": "clustering",
    "text-matching": None,
}
_TASKS = WithJsonSchema({"anyOf": [{"enum": [*_OF_JINA]}, {"type": "null"}]})
_FALSE = WithJsonSchema({"anyOf": [{"const": False}, {"type": "null"}]})


def _task(value: Any) -> Any:
    if value is not None and (not isinstance(value, str) or value not in _OF_JINA):
        raise ValueError(f"this service knows only the tasks {', '.join(_OF_JINA)}")
    return value


def _not_late(value: Any) -> Any:
    if value:
        raise ValueError(
            "the service embeds each window by itself: leave late_chunking out, or ask POST /embed "
            "for the windows of a document"
        )
    return value


class EmbeddingsRequest(BaseModel):
    """OpenAI's and Jina's request; `user`, `truncate` and other fields are ignored."""

    model_config = ConfigDict(strict=True)

    input: Inputs = Field(description="a document or a list of documents, of any length")
    model: str = Field(description="the name of a bundle, or an alias")
    dimensions: int | None = Field(None, ge=1)
    encoding_format: EncodingFormat | None = "float"
    embedding_type: EncodingFormat | None = Field(
        None, description="Jina's name of encoding_format; give only one of them"
    )
    task: Annotated[str | None, BeforeValidator(_task), _TASKS] = Field(
        None, description="Jina's: chooses the model's prompt, if the model has one for it"
    )
    late_chunking: Annotated[bool | None, BeforeValidator(_not_late), _FALSE] = Field(
        None, description="Jina's: not supported"
    )
    normalized: bool = Field(True, description="Jina's: scale each vector to unit length")

    @model_validator(mode="after")
    def _one_form(self) -> EmbeddingsRequest:
        given = "encoding_format" in self.model_fields_set and self.encoding_format is not None
        if self.embedding_type is not None and given:
            raise ValueError("give either encoding_format or embedding_type")
        return self

    @property
    def form(self) -> EncodingFormat:
        """The form of the vectors."""
        return self.embedding_type or self.encoding_format or "float"


class EmbeddingOut(BaseModel):
    """One vector."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | list[int] | str


class TokenUsage(BaseModel):
    """Tokens that the model read, special tokens included."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingsOut(BaseModel):
    """OpenAI's answer."""

    object: Literal["list"]
    data: list[EmbeddingOut]
    model: str
    usage: TokenUsage


class ModelOut(BaseModel):
    """A model that `model` can name."""

    id: str
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: str = "docsplit"


class ModelsOut(BaseModel):
    """All models."""

    object: Literal["list"] = "list"
    data: list[ModelOut]


_STATUSES = (400, 401, 404, 408, 413, 415, 422, 429, 500, 503)


@_openai.post(
    "/embeddings",
    **written(EmbeddingsOut, *_STATUSES, said="One vector per input.", dialect=OpenAIError),
)
async def embeddings(request: Request, body: EmbeddingsRequest) -> Response:
    """Vectors of whole documents for OpenAI clients. Nothing is truncated."""
    encoder = inference.service_of(request).encoders.named(body.model)
    inference.check_dimensions(encoder, body.dimensions)
    texts = [body.input] if isinstance(body.input, str) else body.input
    purpose = None if body.task is None else _OF_JINA[body.task]
    prompt = None if purpose is None else for_purpose(encoder.manifest, purpose)
    result = await inference.embed(request, texts, prompt_name=prompt, encoder=encoder)
    vectors = inference.vectors(result, unit=body.normalized, dimensions=body.dimensions)
    tokens = result.computed
    repeatable(request.scope)
    entries = (
        {"object": "embedding", "index": index, "embedding": vector}
        for index, vector in enumerate(encode_each(vectors, body.form))
    )
    async with writing(vectors):
        data = await json_list(entries)
    content = {
        "object": "list",
        "data": data,
        "model": encoder.name,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }
    return json_response(content, inference.headers(request, result))


@_openai.get("/models/{model:path}", responses=documented(401, 404, 503, dialect=OpenAIError))
async def model(request: Request, model: str) -> ModelOut:
    """One of the names that `model` accepts."""
    if model not in inference.service_of(request).encoders.names:
        raise NotFoundError("there is no model of that name; GET /v1/models lists all", "model")
    return ModelOut(id=model)


@_openai.get("/models")
async def models(request: Request) -> ModelsOut:
    """The names that `model` accepts."""
    encoders = inference.service_of(request).encoders
    return ModelsOut(data=[ModelOut(id=name) for name in encoders.names])


_OF_COHERE = {
    "search_query": "query",
    "search_document": "document",
    "classification": "classification",
    "clustering": "clustering",
}


class CoherePart(BaseModel):
    """A text of an input."""

    model_config = ConfigDict(strict=True)

    type: Literal["text"] = Field(description="the service embeds no images")
    text: Annotated[str, BeforeValidator(valid_text), TEXT]


class CohereInput(BaseModel):
    """An input of one or more texts, which become one document."""

    model_config = ConfigDict(strict=True)

    content: list[CoherePart] = Field(min_length=1, max_length=64, fail_fast=True)


class CohereEmbedRequest(BaseModel):
    """Cohere's request; `truncate`, `max_tokens`, `priority` and other fields are ignored."""

    model_config = ConfigDict(strict=True)

    model: str = Field(description="the name of a bundle, or an alias")
    texts: Annotated[list[str], BeforeValidator(valid_texts)] | None = Field(
        None, min_length=1, description="documents of any length; or give inputs"
    )
    inputs: list[CohereInput] | None = Field(None, min_length=1, fail_fast=True)
    input_type: Literal["search_document", "search_query", "classification", "clustering"] = Field(
        description="the purpose; it chooses the model's prompt, if the model has one for it"
    )
    embedding_types: list[EncodingFormat] | None = Field(
        None, min_length=1, max_length=6, fail_fast=True, description="by default float"
    )
    output_dimension: int | None = Field(
        None, ge=1, description="keep only the first components; the vectors are renormalised"
    )

    @model_validator(mode="before")
    @classmethod
    def _no_images(cls, body: Any) -> Any:
        if isinstance(body, dict) and body.get("images"):
            raise ValueError("images: the service embeds only texts")
        return body

    @model_validator(mode="after")
    def _one_source(self) -> CohereEmbedRequest:
        if (self.texts is None) == (self.inputs is None):
            raise ValueError("give either texts or inputs")
        return self

    @property
    def documents(self) -> list[str]:
        """The texts to embed."""
        if self.texts is not None:
            return self.texts
        return ["\n".join(part.text for part in one.content) for one in self.inputs or []]


class ByTypeOut(BaseModel):
    """The vectors in each form that the request names."""

    model_config = ConfigDict(populate_by_name=True)

    floats: list[list[float]] | None = Field(None, alias="float")
    int8: list[list[int]] | None = None
    uint8: list[list[int]] | None = None
    binary: list[list[int]] | None = Field(None, description="signs of eight components, minus 128")
    ubinary: list[list[int]] | None = Field(None, description="signs of eight components, as bits")
    base64: list[str] | None = Field(None, description="little-endian float32")


class CohereEmbedOut(BaseModel):
    """Cohere's answer."""

    id: str
    response_type: Literal["embeddings_by_type"]
    embeddings: ByTypeOut
    meta: MetaOut


_SAID = "One vector per document in each form."


@_cohere.post("/embed", **written(CohereEmbedOut, *_STATUSES, said=_SAID, dialect=CohereError))
async def embed_by_type(request: Request, body: CohereEmbedRequest) -> Response:
    """Vectors of whole documents for Cohere's clients. Nothing is truncated."""
    encoder = inference.service_of(request).encoders.named(body.model)
    inference.check_dimensions(encoder, body.output_dimension)
    prompt = for_purpose(encoder.manifest, _OF_COHERE[body.input_type])
    result = await inference.embed(request, body.documents, prompt_name=prompt, encoder=encoder)
    vectors = inference.vectors(result, dimensions=body.output_dimension)
    tokens = result.computed
    forms: list[EncodingFormat] = body.embedding_types or ["float"]
    async with writing(vectors, len(forms)):
        embeddings = {
            form: await json_list(encode_each(vectors, form)) for form in dict.fromkeys(forms)
        }
    content = {
        "id": str(uuid.uuid4()),
        "response_type": "embeddings_by_type",
        "embeddings": embeddings,
        "meta": {"api_version": {"version": "2"}, "tokens": {"input_tokens": tokens}},
    }
    return json_response(content, inference.headers(request, result))


router = APIRouter()
router.include_router(_openai)
router.include_router(_cohere)
