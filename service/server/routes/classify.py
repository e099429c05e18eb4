"""POST /classify and POST /predict: labels of whole documents, in TEI's format."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import orjson
from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from docsplit.heads import examples as bounds
from docsplit.heads.examples import NONE, UNSURE
from docsplit.heads.network import Floats, Scorer, contrast
from docsplit.windowing.pooling import Vectors, normalise
from service import executors
from service.embedding.embedder import Document, Embedded
from service.errors import ConflictError, InvalidError, NotFoundError
from service.keys.file import Right
from service.server.bodies.fields import INDEX_NAME, Flag, Inputs
from service.server.bodies.large import BoundedRoute
from service.server.edge import rights
from service.server.edge.errors import written
from service.server.routes import inference

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from service.learning.heads import Head

# windows that explain an answer, and windows times outputs that are scored at once
WINDOWS = 3
PART_SCORES = 1_000_000
# documents times labels: above this, a thread computes and the event loop stays free
MOST_SCORES_AT_ONCE = 20_000
JSON = "application/json"

router = APIRouter(route_class=BoundedRoute, tags=["classify"])


def _unwrapped(value: Any) -> Any:
    """TEI's batches are lists of lists, of one text or of two."""
    if not isinstance(value, list) or not all(isinstance(one, list) for one in value):
        return value
    if any(len(one) == 2 and isinstance(one[0], str) for one in value):
        raise ValueError("pairs of texts are not supported: give each text by itself")
    return [one[0] if len(one) == 1 else one for one in value]


def _one_text(value: Any) -> Any:
    """TEI reads a list of one text as that text, and a list of such lists as a batch."""
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str):
        return value[0]
    return _unwrapped(value)


class ClassifyRequest(BaseModel):
    """The documents to label, and the classifier."""

    model_config = ConfigDict(strict=True)

    inputs: Annotated[Inputs, BeforeValidator(_unwrapped)] = Field(
        description="a document or a list of documents, of any length"
    )
    classifier: Annotated[str, Field(pattern=INDEX_NAME)] | None = Field(
        None, description="its name; optional if there is only one classifier"
    )
    top_k: int | None = Field(None, ge=1, description="most labels in each answer")
    raw_scores: bool = Field(False, description="logits instead of calibrated probabilities")
    threshold: float = Field(
        0.0,
        ge=0,
        le=1,
        description="if the best probability is lower, `unsure` comes before it; a "
        "multi-label classifier returns only labels of at least this probability",
    )
    none: bool = Field(
        False,
        description="`none` comes first if the text fits no label as nearly all examples do",
    )
    explain: bool = Field(False, description="name the windows that decided")
    truncate: Flag = False


class PredictRequest(ClassifyRequest):
    """The same for clients of TEI."""

    inputs: Annotated[Inputs, BeforeValidator(_one_text)] = Field(
        description="a document or a list of documents, of any length"
    )


class Prediction(BaseModel):
    """A label and its calibrated probability, or logit."""

    label: str
    score: float


class WindowOut(BaseModel):
    """A span of a document, in Unicode code points, and its share in the decision."""

    start: int
    end: int
    contribution: float = Field(
        description="by how much the first label's probability falls without this window"
    )


class Explained(BaseModel):
    """The answer for an input, with the windows that decided."""

    labels: list[Prediction]
    windows: list[WindowOut]


_STATUSES = (400, 401, 404, 408, 409, 413, 415, 422, 429, 500, 503)
_SAID = "Labels by falling score, for each input."
_OF_ONE = "Labels by falling score, for one text or for each of a list."
_Several = list[list[Prediction]] | list[Explained]


@router.post(
    "/predict", **written(list[Prediction] | Explained | _Several, *_STATUSES, said=_OF_ONE)
)
async def predict(request: Request, body: PredictRequest) -> Response:
    """``/classify`` for clients of TEI: one text gets its answer without a list around it."""
    return await _classified(request, body, flat=isinstance(body.inputs, str))


@router.post("/classify", **written(_Several, *_STATUSES, said=_SAID))
async def classify(request: Request, body: ClassifyRequest) -> Response:
    """Labels of whole documents, with calibrated probabilities."""
    return await _classified(request, body)


async def _classified(request: Request, body: ClassifyRequest, *, flat: bool = False) -> Response:
    head = await trained_head(request, body.classifier)
    texts = [body.inputs] if isinstance(body.inputs, str) else body.inputs
    least = _threshold(head) if body.none else None
    try:
        bounds.check_answer(len(texts), len(head.labels), body.top_k)
    except ValueError as error:
        raise InvalidError(str(error), "top_k") from error
    encoder = inference.service_of(request).encoders.of(head.revision)
    result = await inference.embed(request, texts, truncate=body.truncate, encoder=encoder)
    answer = partial(_answers, head, body, result, least, flat)
    # to explain an answer, each window is left out once
    if body.explain or len(texts) * len(head.labels) > MOST_SCORES_AT_ONCE:
        content = await executors.SCORING.run(answer)
    else:
        content = answer()
    return Response(content, headers=inference.headers(request, result), media_type=JSON)


def _answers(
    head: Head, body: ClassifyRequest, result: Embedded, least: float | None, flat: bool
) -> bytes:
    """The answer's JSON; computes scores for a part of the documents at a time."""
    vectors = inference.vectors(result)
    rows = max(1, MOST_SCORES_AT_ONCE // len(head.labels))
    answer: list[Any] = []
    for first in range(0, len(vectors), rows):
        part = vectors[first : first + rows]
        probabilities = head.network.probabilities(part)
        scores: Vectors | Floats = probabilities
        none = np.zeros(len(part), dtype=np.bool_)
        if body.raw_scores or least is not None:
            logits = head.network.logits(part)
            scores = logits if body.raw_scores else probabilities
            none = none if least is None else contrast(logits) < least
        documents = result.documents[first : first + rows]
        for document, row, certain, unlike in zip(
            documents, scores, probabilities, none, strict=True
        ):
            labels = _labels(head, row, certain, body.threshold, body.top_k)
            if unlike:
                labels = [{"label": NONE, "score": labels[0]["score"]}, *labels][: body.top_k]
            if body.explain:
                best = int(certain.argmax())
                prior = head.share(head.labels[best])
                windows = decisive(head.network, best, document, prior)
                answer.append({"labels": labels, "windows": [asdict(w) for w in windows]})
            else:
                answer.append(labels)
    return orjson.dumps(answer[0] if flat else answer)


def _labels(
    head: Head, scores: Floats, certain: Floats, threshold: float, top_k: int | None
) -> list[dict[str, Any]]:
    order = np.argsort(-scores, kind="stable")
    if head.multi_label:
        order = order[certain[order] >= threshold]
    labels = [{"label": head.labels[i], "score": float(scores[i])} for i in order[:top_k]]
    if not head.multi_label and certain.max() < threshold:
        labels.insert(0, {"label": UNSURE, "score": labels[0]["score"]})
    return labels[:top_k]


def _threshold(head: Head) -> float:
    """The learnt threshold of `none`; raises InvalidError, with a remedy, if there is none."""
    if head.multi_label:
        reason = "a multi_label classifier answers with an empty list: set threshold"
    elif NONE in head.labels:
        reason = "it is a label of this classifier, which answers with it by itself: leave it out"
    elif head.none_below is None:
        remedy = "docsplit-train head" if head.bundled else "POST /classifiers/{name}/retrain"
        reason = f"an earlier version trained this classifier: train it again with {remedy}"
    else:
        return head.none_below
    raise InvalidError(f"none: {reason}", "none")


async def trained_head(request: Request, name: str | None) -> Head:
    """A classifier of a served bundle; without ``name`` the only one.

    Raises:
        ServiceError: there is none, it has another revision, or the key has no right to it.
    """
    service = inference.service_of(request)
    heads = await service.heads.classifiers()
    if name is None:
        names = rights.seen(request, await heads.names(), Right.USE_CLASSIFIERS)
        if len(names) != 1:
            known = ", ".join(names[:20]) or "none: train one with PUT /classifiers/{name}"
            raise InvalidError(f"classifier: give a name; there is {known}", "classifier")
        [name] = names
    rights.require(request, Right.USE_CLASSIFIERS, name)
    hint = f"train it again from its stored examples with POST /classifiers/{name}/retrain"
    try:
        return await heads.current(name, service.encoders.revisions, hint)
    except NotFoundError:
        if await service.trainings.get(name) is None:
            raise
    raise ConflictError(
        "the classifier is not trained yet: GET /classifiers/{name} shows its progress"
    )


@dataclass(frozen=True, slots=True)
class Contribution:
    """A window, by its first character and one past its last, and its contribution."""

    start: int
    end: int
    contribution: float


def decisive(network: Scorer, output: int, document: Document, prior: float) -> list[Contribution]:
    """Up to three windows that contribute most to an output, the strongest first.

    A window's contribution is the fall of the output's probability when the window is left out of
    the weighted mean (occlusion; Zeiler and Fergus 2014). The result leaves out windows
    without a positive contribution, except the strongest. A document of one window would leave
    nothing: its contribution is the probability minus ``prior``, the output's share of examples.
    """
    windows = document.windows
    whole = float(network.probabilities(normalise(document.vector())[None])[0, output])
    if len(windows) == 1:
        return [Contribution(windows[0].start, windows[0].end, whole - prior)]
    left = without(document.matrix(), np.array([window.weight for window in windows]))
    rows = max(1, PART_SCORES // network.shape[1])
    falls = whole - np.concatenate(
        [
            network.probabilities(left[first : first + rows])[:, output]
            for first in range(0, len(left), rows)
        ]
    )
    order = np.argsort(-falls, kind="stable")[:WINDOWS].tolist()
    return [
        Contribution(windows[i].start, windows[i].end, float(falls[i]))
        for place, i in enumerate(order)
        if place == 0 or falls[i] > 0
    ]


def without(windows: Vectors, weights: NDArray[np.float64]) -> Vectors:
    """The document's unit vector without each of its windows in turn, ``[windows, dimensions]``."""
    weighted = windows.astype(np.float64) * weights[:, None]
    return normalise((weighted.sum(axis=0) - weighted).astype(np.float32))
