"""POST /v1/embeddings and GET /v1/models: OpenAI's dialect."""

from __future__ import annotations

from typing import Any, Literal

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from service.server.bodies.encoding import EncodingFormat, encode, json_response
from service.server.bodies.fields import Inputs
from service.server.edge.errors import OpenAIError, documented
from service.server.edge.large_bodies import BodyRoute
from service.server.edge.repeats import repeatable
from service.server.routes import inference

router = APIRouter(route_class=BodyRoute, prefix="/v1", tags=["openai"])


class EmbeddingsRequest(BaseModel):
    """OpenAI's request; `user` and other fields are ignored."""

    model_config = ConfigDict(strict=True)

    input: Inputs = Field(description="a document or a list of documents, of any length")
    model: str = Field(description="the bundle's name, or one of its aliases")
    dimensions: int | None = Field(None, ge=1)
    encoding_format: EncodingFormat = "float"


class EmbeddingOut(BaseModel):
    """One vector."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class UsageOut(BaseModel):
    """Tokens that the model read, special tokens included."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingsOut(BaseModel):
    """OpenAI's answer."""

    object: Literal["list"]
    data: list[EmbeddingOut]
    model: str
    usage: UsageOut


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


_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {"description": "One vector per input.", "model": EmbeddingsOut},
    **documented(400, 401, 404, 408, 413, 415, 422, 429, 500, 503, dialect=OpenAIError),
}


@router.post("/embeddings", responses=_ANSWERS, response_model=None, response_class=Response)
async def embeddings(request: Request, body: EmbeddingsRequest) -> Response:
    """Vectors of whole documents for OpenAI clients. Nothing is truncated."""
    service = inference.service_of(request)
    inference.check_model(service, body.model)
    inference.check_dimensions(service, body.dimensions)
    texts = [body.input] if isinstance(body.input, str) else body.input
    result = await inference.embed(request, texts)
    vectors = inference.vectors(result, dimensions=body.dimensions)
    tokens = sum(document.computed for document in result.documents)
    repeatable(request.scope)
    content = {
        "object": "list",
        "data": [
            {"object": "embedding", "index": index, "embedding": vector}
            for index, vector in enumerate(encode(vectors, body.encoding_format))
        ],
        "model": service.bundle.manifest.name,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }
    return json_response(content, inference.headers(request, result))


@router.get("/models")
async def models(request: Request) -> ModelsOut:
    """The names that `model` accepts."""
    service = inference.service_of(request)
    return ModelsOut(data=[ModelOut(id=name) for name in inference.model_names(service)])
