"""POST /v2/embed: Cohere's dialect."""

from __future__ import annotations

import uuid
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from service.embedding.prompts import for_purpose
from service.server.bodies.encoding import (
    EncodingFormat,
    encode_each,
    json_list,
    json_response,
    writing,
)
from service.server.bodies.fields import TEXT, valid_text, valid_texts
from service.server.bodies.large import BodyRoute
from service.server.edge.errors import CohereError, documented
from service.server.routes import inference
from service.server.routes.rerank import MetaOut

router = APIRouter(route_class=BodyRoute, prefix="/v2", tags=["cohere"])

_PURPOSES = {
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


_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {"description": "One vector per document in each form.", "model": CohereEmbedOut},
    **documented(400, 401, 404, 408, 413, 415, 422, 429, 500, 503, dialect=CohereError),
}


@router.post("/embed", responses=_ANSWERS, response_model=None, response_class=Response)
async def embed_by_type(request: Request, body: CohereEmbedRequest) -> Response:
    """Vectors of whole documents for Cohere's clients. Nothing is truncated."""
    encoder = inference.service_of(request).encoders.named(body.model)
    inference.check_dimensions(encoder, body.output_dimension)
    prompt = for_purpose(encoder.manifest, _PURPOSES[body.input_type])
    result = await inference.embed(request, body.documents, prompt_name=prompt, encoder=encoder)
    vectors = inference.vectors(result, dimensions=body.output_dimension)
    tokens = sum(document.computed for document in result.documents)
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
