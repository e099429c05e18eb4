"""POST /classify and POST /predict: labels of whole documents, as TEI answers them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from service.edge import deadline
from service.edge.errors import ApiError, documented
from service.routes import inference
from service.routes.classifiers import UNSURE
from service.routes.encoding import json_response
from service.routes.fields import Inputs
from service.routes.names import INDEX_NAME

if TYPE_CHECKING:
    from service.heads.store import Head

router = APIRouter(tags=["classify"])


class ClassifyRequest(BaseModel):
    """What to label, and by which classifier."""

    model_config = ConfigDict(strict=True)

    inputs: Inputs = Field(description="a document or a list of documents, of any length")
    classifier: Annotated[str, Field(pattern=INDEX_NAME)] | None = Field(
        None, description="its name; may be left out where there is one alone"
    )
    top_k: int | None = Field(None, ge=1, description="labels of each answer, at most")
    raw_scores: bool = Field(False, description="logits in place of calibrated probabilities")
    threshold: float = Field(
        0.0, ge=0, le=1, description="below this probability of the best, it comes after `unsure`"
    )
    truncate: bool = False


class Prediction(BaseModel):
    """A label and its calibrated probability, or logit."""

    label: str
    score: float


_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "For each input labels by falling score.",
        "model": list[list[Prediction]],
    },
    **documented(400, 401, 404, 408, 409, 413, 415, 422, 429, 500, 503),
}


@router.post("/predict", responses=_ANSWERS, response_model=None, response_class=Response)
@router.post("/classify", responses=_ANSWERS, response_model=None, response_class=Response)
async def classify(request: Request, body: ClassifyRequest) -> Response:
    """Labels of whole documents, with calibrated probabilities."""
    head = await _head(request, body.classifier)
    texts = [body.inputs] if isinstance(body.inputs, str) else body.inputs
    result = await inference.embed(request, texts, truncate=body.truncate)
    vectors = inference.vectors(result)
    probabilities = head.network.probabilities(vectors)
    scores = head.network.logits(vectors) if body.raw_scores else probabilities
    answer = []
    for row, certain in zip(scores, probabilities.max(axis=1), strict=True):
        order = np.argsort(-row, kind="stable")
        labels = [{"label": head.labels[i], "score": float(row[i])} for i in order]
        if certain < body.threshold:
            labels.insert(0, {"label": UNSURE, "score": float(row[order[0]])})
        answer.append(labels[: body.top_k])
    return json_response(answer, inference.headers(request, result))


async def _head(request: Request, name: str | None) -> Head:
    service = inference.service_of(request)
    async with deadline.within(request):
        heads = await service.store.classifiers()
        if name is None:
            names = await heads.names()
            if len(names) != 1:
                known = ", ".join(names[:20]) or "none: train one with PUT /classifiers/{name}"
                raise ApiError(422, f"classifier: name one; there is {known}", param="classifier")
            [name] = names
        hint = f"train it anew from its stored examples with POST /classifiers/{name}/retrain"
        return await heads.current(name, service.bundle.manifest.revision, hint)
