"""POST /v1/embeddings and GET /v1/models: OpenAI's dialect, with the fields that Jina adds."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    model_validator,
)

from service.embedding.prompts import for_purpose
from service.errors import NotFoundError
from service.server.bodies.encoding import (
    EncodingFormat,
    encode_each,
    json_list,
    json_response,
    writing,
)
from service.server.bodies.fields import Inputs
from service.server.bodies.large import BodyRoute
from service.server.edge.errors import OpenAIError, documented
from service.server.edge.layer import repeatable
from service.server.routes import inference

router = APIRouter(route_class=BodyRoute, prefix="/v1", tags=["openai"])


# Jina's tasks, and the purpose of each
_PURPOSES = {
    "retrieval.query": "query",
    "retrieval.passage": "document",
    "classification": "classification",
    "separation": "clustering",
    "clustering": "clustering",
    "text-matching": None,
}
_TASKS = WithJsonSchema({"anyOf": [{"enum": [*_PURPOSES]}, {"type": "null"}]})
_FALSE = WithJsonSchema({"anyOf": [{"const": False}, {"type": "null"}]})


def _task(value: Any) -> Any:
    if value is not None and (not isinstance(value, str) or value not in _PURPOSES):
        raise ValueError(f"this service knows only the tasks {', '.join(_PURPOSES)}")
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
    encoder = inference.service_of(request).encoders.named(body.model)
    inference.check_dimensions(encoder, body.dimensions)
    texts = [body.input] if isinstance(body.input, str) else body.input
    purpose = None if body.task is None else _PURPOSES[body.task]
    prompt = None if purpose is None else for_purpose(encoder.manifest, purpose)
    result = await inference.embed(request, texts, prompt_name=prompt, encoder=encoder)
    vectors = inference.vectors(result, unit=body.normalized, dimensions=body.dimensions)
    tokens = sum(document.computed for document in result.documents)
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


@router.get("/models/{model:path}", responses=documented(401, 404, 503, dialect=OpenAIError))
async def model(request: Request, model: str) -> ModelOut:
    """One of the names that `model` accepts."""
    if model not in inference.service_of(request).encoders.names:
        raise NotFoundError("there is no model of that name; GET /v1/models lists all", "model")
    return ModelOut(id=model)


@router.get("/models")
async def models(request: Request) -> ModelsOut:
    """The names that `model` accepts."""
    encoders = inference.service_of(request).encoders
    return ModelsOut(data=[ModelOut(id=name) for name in encoders.names])
