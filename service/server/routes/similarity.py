"""POST /similarity: cosine of one text to others, in the format of hub clients."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from service.server.bodies.encoding import json_response
from service.server.bodies.fields import CutSide, Flag, ModelName, valid_text, valid_texts
from service.server.bodies.large import BodyRoute
from service.server.edge.errors import documented
from service.server.routes import inference

router = APIRouter(route_class=BodyRoute, tags=["embed"])


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


_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Cosine of the source to each sentence, in their order.",
        "model": list[float],
    },
    **documented(400, 401, 404, 408, 413, 415, 422, 429, 500, 503),
}


@router.post("/similarity", responses=_ANSWERS, response_model=None, response_class=Response)
async def similarity(request: Request, body: SimilarityRequest) -> Response:
    """Cosine similarity of `source_sentence` to each of `sentences`."""
    texts = [body.inputs.source_sentence, *body.inputs.sentences]
    options = body.parameters or body
    with inference.naming(_place):
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


def _place(position: int) -> str:
    return f"inputs.sentences.{position - 1}" if position else "inputs.source_sentence"
