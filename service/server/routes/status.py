"""GET /health, /livez, /readyz, /info, /keys and /metrics."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, Literal

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel, Field

from docsplit.bundles.manifest import Contents, WindowWeights
from service.embedding.calibration import Measurement
from service.keys.file import EVERYTHING, Right
from service.keys.ring import UNLIMITED, Bucket, Key
from service.server.edge.errors import NativeError
from service.server.edge.rights import KEY, RIGHTS
from service.server.encoder import Encoder
from service.server.lifecycle import Phase, Service
from service.server.routes.inference import service_of

router = APIRouter(tags=["status"])


class Ready(BaseModel):
    """The process's phase, and what does not work although embedding does."""

    status: Phase
    degraded: bool = False
    reasons: list[str] = Field(
        default_factory=list,
        description="why it is degraded. redis: Redis is away; answers are correct but slower. "
        "model: the engine of a bundle does not start; /info names it. "
        "index: another bundle embedded an index, whose requests get 409; the log names it. "
        "store_gone: the store is gone. store_enospc: its last write failed. store_sync: a sync "
        "failed. Of an object store also store_unreachable, store_denied, store_unsafe and "
        "store_unsupported",
    )


class CalibrationInfo(BaseModel):
    """Measurements of the start that chose threads, streams and batch size, and the reason."""

    threads: int
    streams: int
    batch_tokens: int
    reason: str
    seconds: float
    measured: list[Measurement]


class EngineInfo(BaseModel):
    """The engine, and why it was chosen."""

    name: str
    precision: str
    device: str
    streams: int
    batch_tokens: int
    reason: str
    processor: str
    calibration: CalibrationInfo | None


class RerankerInfo(BaseModel):
    """The re-ranker, and why its engine was chosen."""

    name: str
    revision: str
    window_tokens: int
    query_tokens: int = Field(description="most tokens of a query")
    licence: str
    source: str
    precisions: dict[str, Any]
    engine: str
    precision: str
    reason: str


class ModelInfo(BaseModel):
    """A bundle that `model` in a request can name."""

    name: str
    revision: str
    dimensions: int
    window_tokens: int
    prompts: list[str]
    licence: str
    source: str
    state: Literal["loaded", "unloaded", "failed"] = Field(
        description="unloaded: the first request that needs it loads it"
    )
    memory_bytes: int = Field(description="estimate of the memory that it takes once it is loaded")
    engine: str
    precision: str


class Info(BaseModel):
    """The default model and its limits: text-embeddings-inference's field names, and our own."""

    model_id: str
    model_sha: str
    model_dtype: str
    model_type: dict[str, Any]
    max_input_length: int
    max_client_batch_size: int
    max_batch_tokens: int
    version: str
    dimensions: int
    window_tokens: int
    window_weights: WindowWeights
    matryoshka: list[int]
    prompts: list[str]
    licence: str
    source: str
    precisions: dict[str, Any]
    engine: EngineInfo | None
    reranker: RerankerInfo | None
    models: list[ModelInfo] = Field(description="all bundles, the default one first")


_NOT_READY: dict[int | str, dict[str, Any]] = {
    503: {"model": Ready, "description": "Starting, draining or failed."}
}


@router.get("/readyz", responses=_NOT_READY)
@router.get("/health", responses=_NOT_READY)
@router.head("/readyz", include_in_schema=False)
@router.head("/health", include_in_schema=False)
async def readyz(request: Request, response: Response) -> Ready:
    """200 when balancers should send requests here."""
    service = service_of(request)
    response.status_code = 200 if service.phase is Phase.READY else 503
    reasons = ["redis"] if service.degraded else []
    if any(encoder.failed for encoder in service.encoders):
        reasons.append("model")
    if service.store.refuses:
        reasons.append("index")
    if service.store.volume.trouble is not None:
        reasons.append(f"store_{service.store.volume.trouble.lower()}")
    return Ready(status=service.phase, degraded=bool(reasons), reasons=reasons)


@router.get("/livez", responses=_NOT_READY)
@router.head("/livez", include_in_schema=False)
async def livez(request: Request, response: Response) -> Ready:
    """503 when only a restart can help."""
    phase = service_of(request).phase
    response.status_code = 503 if phase is Phase.FAILED else 200
    return Ready(status=phase)


@router.get("/info", responses={401: {"model": NativeError, "description": "No valid API key."}})
async def info(request: Request) -> Info:
    """The default model, its engine and its limits, and all models."""
    service = service_of(request)
    encoder = service.encoders.default
    manifest = encoder.manifest
    batch_tokens = service.settings.batch_tokens
    if not batch_tokens and service.running is not None:
        batch_tokens = service.running.engine.batch_tokens
    return Info(
        model_id=encoder.name,
        model_sha=manifest.revision,
        model_dtype=encoder.choice.arithmetic,
        model_type={"embedding": {"pooling": manifest.pooling}},
        max_input_length=service.settings.max_document_tokens,
        max_client_batch_size=service.settings.max_batch_items,
        max_batch_tokens=batch_tokens,
        version=version("docsplit"),
        dimensions=manifest.dimensions,
        window_tokens=manifest.max_tokens,
        window_weights=manifest.window_weights,
        matryoshka=manifest.matryoshka,
        prompts=sorted(manifest.prompts),
        licence=manifest.licence,
        source=manifest.lineage.source,
        precisions=_precisions(manifest),
        engine=_engine(service, batch_tokens),
        reranker=_reranker(service),
        models=[_model(encoder) for encoder in service.encoders],
    )


def _model(encoder: Encoder) -> ModelInfo:
    manifest = encoder.manifest
    loaded = encoder.running is not None
    return ModelInfo(
        name=encoder.name,
        revision=encoder.revision,
        dimensions=manifest.dimensions,
        window_tokens=manifest.max_tokens,
        prompts=sorted(manifest.prompts),
        licence=manifest.licence,
        source=manifest.lineage.source,
        state="loaded" if loaded else "failed" if encoder.failed else "unloaded",
        memory_bytes=encoder.memory_bytes,
        engine=encoder.choice.engine,
        precision=encoder.choice.arithmetic,
    )


def _precisions(manifest: Contents[Any]) -> dict[str, Any]:
    return {
        name: precision.parity.model_dump() | {"accepted": precision.accepted}
        for name, precision in manifest.precisions.items()
    }


def _reranker(service: Service) -> RerankerInfo | None:
    if service.reranking is None:
        return None
    manifest, choice = service.reranking.bundle.manifest, service.reranking.choice
    return RerankerInfo(
        name=manifest.name,
        revision=manifest.revision,
        window_tokens=manifest.max_tokens,
        query_tokens=service.reranking.tokenizer.most_query_tokens,
        licence=manifest.licence,
        source=manifest.lineage.source,
        precisions=_precisions(manifest),
        engine=choice.engine,
        precision=choice.arithmetic,
        reason=choice.reason,
    )


def _engine(service: Service, batch_tokens: int) -> EngineInfo | None:
    if service.running is None:
        return None
    engine = service.running.engine
    encoder = service.encoders.default
    calibration = encoder.calibration
    return EngineInfo(
        name=engine.name,
        precision=engine.arithmetic,
        device=engine.device,
        streams=engine.streams,
        batch_tokens=batch_tokens,
        reason=encoder.choice.reason,
        processor=service.processor.summary,
        calibration=None
        if calibration is None
        else CalibrationInfo.model_validate(calibration.summary()),
    )


class KeyOut(BaseModel):
    """An API key, without its token, and what it has used."""

    name: str
    own: bool = Field(description="whether this request has this key")
    everything: bool = Field(description="whether it may do everything")
    read_indexes: list[str]
    write_indexes: list[str]
    use_classifiers: list[str]
    train_classifiers: list[str]
    requests_per_second: float | None
    tokens_per_second: float | None
    expires: datetime | None
    revoked: bool
    requests: int = Field(description="admitted by this process since its start")
    tokens: int = Field(description="charged by this process since its start")


class KeysOut(BaseModel):
    """The keys that the request's key may see."""

    required: bool = Field(description="whether requests need a key")
    keys: list[KeyOut]


@router.get("/keys", responses={401: {"model": NativeError, "description": "No valid API key."}})
async def list_keys(request: Request) -> KeysOut:
    """All keys for a key that may do everything, otherwise only its own."""
    own = request.scope.get(KEY)
    every = request.scope.get(RIGHTS, EVERYTHING) == EVERYTHING
    ring = service_of(request).keys
    return KeysOut(
        required=ring.required,
        keys=[_key(key, key.name == own) for key in ring.all() if every or key.name == own],
    )


def _key(key: Key, own: bool) -> KeyOut:
    patterns = {str(right): list(key.rights.patterns.get(right, ())) for right in Right}
    return KeyOut(
        name=key.name,
        own=own,
        everything=key.rights == EVERYTHING,
        read_indexes=patterns[Right.READ_INDEXES],
        write_indexes=patterns[Right.WRITE_INDEXES],
        use_classifiers=patterns[Right.USE_CLASSIFIERS],
        train_classifiers=patterns[Right.TRAIN_CLASSIFIERS],
        requests_per_second=_rate(key.requests),
        tokens_per_second=_rate(key.tokens),
        expires=None if math.isinf(key.expires) else datetime.fromtimestamp(key.expires, UTC),
        revoked=key.revoked,
        requests=round(key.requests.taken),
        tokens=round(key.tokens.taken),
    )


def _rate(bucket: Bucket) -> float | None:
    return None if bucket.rate == UNLIMITED else bucket.rate


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(request: Request) -> Response:
    """Prometheus metrics."""
    return Response(await service_of(request).scrape(), media_type=CONTENT_TYPE_LATEST)
