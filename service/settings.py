"""The one settings object: command line over environment over file over default."""

import ipaddress
import os
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    SecretStr,
    ValidationInfo,
    field_validator,
)
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from docsplit.bundles.format import DEFAULT_BUNDLE
from docsplit.engines.choice import ArithmeticWish, EngineWish
from service import memory
from service.errors import ServiceError

ENV_PREFIX = "DOCSPLIT_"

Count = Annotated[int, Field(ge=1)]


class SettingsError(ServiceError):
    """Settings are invalid. The message has one line per setting, with its name."""


class Settings(BaseSettings):
    """Start the docsplit service: vectors of whole documents over HTTP."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX,
        env_ignore_empty=True,
        extra="forbid",
        frozen=True,
        # clocks and threads cannot wait for ever
        allow_inf_nan=False,
        use_attribute_docstrings=True,
        cli_kebab_case=True,
        cli_avoid_json=True,
        cli_hide_none_type=True,
        cli_prog_name="docsplit-serve",
        cli_implicit_flags=True,
    )

    config: Path | None = None
    """YAML file of settings, names as below"""
    bundle: Annotated[list[str], NoDecode, Field(min_length=1)] = [str(DEFAULT_BUNDLE)]
    """folders of the bundles to serve, separated by commas or repeated, each as PATH or NAME=PATH;
    the first one loads at the start, the others when a request needs them"""
    bundle_shares: Annotated[list[PositiveFloat], NoDecode] = []
    """parts of the cores that the bundles get under load, relative to each other, separated by
    commas; none: equal parts"""
    max_bundle_bytes: NonNegativeInt = 0
    """largest memory for the bundles that each process loads, as /info estimates it; 0: no limit"""
    former_bundle: Path | None = None
    """folder of the bundle that the first one succeeds: it answers for an index until the service
    has embedded that index for the first one"""
    reranker: Path | None = None
    """folder of a re-ranking bundle, whose cross-encoder ranks for /rerank"""
    host: str = "127.0.0.1"
    """address to listen on"""
    port: Annotated[int, Field(ge=0, le=65535)] = 8080
    """port to listen on; 0 takes a free one"""

    workers: Annotated[int, Field(ge=1, le=256)] = 1
    """services behind one address, each with its own engine and its share of cores"""
    engine: EngineWish = "auto"
    """runtime; auto picks by what is installed"""
    precision: ArithmeticWish = "auto"
    """arithmetic; auto picks by the processor"""
    threads: Annotated[int, Field(ge=0, le=1024)] = 0
    """CPU cores to compute on, of all workers together; 0 takes all"""
    streams: Annotated[int, Field(ge=0, le=1024)] = 0
    """batches computed at once on a CPU; 0 means one per core"""
    batch_tokens: NonNegativeInt = 0
    """largest number of tokens in a batch, with padding; 0 lets the engine choose"""
    calibrate: Annotated[float, Field(ge=0, le=60)] = 1.5
    """seconds at the start for measuring the fastest threads, streams and batch_tokens, among those
    left at 0; 0 measures nothing, nor do fewer than four cores"""
    engine_timeout: PositiveFloat = 60.0
    """seconds a batch may take; beyond this the process ends"""
    language: Annotated[str, Field(pattern="^[a-z]{2,3}$")] = "en"
    """ISO 639 code of the language whose rules split sentences"""

    max_document_tokens: Count = 262_144
    """largest number of tokens in a document; beyond it the answer is 413"""
    max_batch_items: Count = 2048
    """largest number of inputs in a request"""
    max_body_bytes: Annotated[int, Field(ge=1024)] = 16_777_216
    """largest body of a request, in bytes"""
    max_body_values: Annotated[int, Field(ge=1024)] = 262_144
    """largest number of JSON values in the body of a request"""
    max_file_bytes: Annotated[int, Field(ge=1024)] = 104_857_600
    """largest file of an upload, in bytes"""
    max_upload_bytes: Annotated[int, Field(ge=1024)] = 536_870_912
    """largest body of an upload of files, in bytes"""
    max_upload_disk_bytes: int = 2_147_483_648
    """largest disk space that each process takes for uploaded files until they are read; one client
    may take half of it; beyond this the answer is 429"""
    ocr: Annotated[str, Field(pattern=r"^(auto|off|[A-Za-z_]+(\+[A-Za-z_]+)*)$")] = "auto"
    """languages of the text in scans, as tesseract names them, joined by +; auto: all installed
    ones, or only eng if they are more than three; off: scans are refused"""
    max_inflight_bytes: int = 536_870_912
    """largest memory that each process reserves for requests in progress; one client may reserve
    half of it; beyond this the answer is 429"""
    queue_tokens: Count = 524_288
    """tokens that may wait in the queue for one client; all clients together may have twice as
    many; beyond this the answer is 429"""
    queue_age_limit: NonNegativeFloat = 2.0
    """seconds after which a client's oldest work leads one in four of its batches"""
    max_header_bytes: Annotated[int, Field(ge=1024)] = 32_768
    """largest request line and headers of a request, in bytes"""
    header_timeout: PositiveFloat = 20.0
    """seconds in which the request line and headers must arrive"""
    body_timeout: PositiveFloat = 20.0
    """seconds in which a body must arrive; every 16 KiB add one second"""
    max_connections: Count = 2048
    """largest number of open connections; a further one closes the one that has been idle
    longest"""
    request_timeout: PositiveFloat = 60.0
    """seconds a request may take unless it sends x-request-timeout"""
    max_request_timeout: PositiveFloat = 600.0
    """largest value of x-request-timeout, in seconds"""
    cache_bytes: NonNegativeInt = 67_108_864
    """bytes of memory for cached vectors of windows and, a quarter of it, for answers to identical
    requests; 0 turns the cache off"""
    redis_url: SecretStr | None = None
    """redis://, rediss:// or unix:// URL of a cache that replicas share"""
    redis_ttl: Count = 604_800
    """seconds until an entry in Redis expires"""
    redis_timeout: Annotated[float, Field(gt=0, le=10)] = 0.1
    """seconds a call to Redis may take; a slower one counts as a miss"""
    cache_secret: SecretStr | None = None
    """secret of at least 32 characters that authenticates the values in Redis; all replicas share
    it. None: upserts and trainings do not use Redis"""
    cache_sharing: Literal["auto", "shared", "separate"] = "auto"
    """whether clients share the cache; auto: separate where several API keys or a keys_file are
    configured, else shared"""

    index_path: Annotated[str, Field(min_length=1)] = "data/index"
    """folder or s3:// URI of the indexes and trained heads; all replicas share it"""
    bucket_timeout: PositiveFloat = 5.0
    """seconds that one request to an s3:// index_path may take"""
    durability: Literal["fsync", "commit"] = "fsync"
    """fsync: writes below a folder are on disk before they are acknowledged; commit: the operating
    system writes them later; a power failure may lose the newest"""
    index_cache_bytes: NonNegativeInt = 536_870_912
    """memory for parts of indexes, metadata, and ids of documents that were read before"""
    erase_within: Annotated[float, Field(ge=21_600)] = 86_400.0
    """seconds after which no file of an index has a text that was deleted or replaced"""

    api_keys: Annotated[list[SecretStr], NoDecode] = []
    """accepted bearer keys, separated by commas; none: no key is needed"""
    keys_file: Path | None = None
    """TOML file of named, hashed keys; a changed file is read again"""
    cors_origins: Annotated[list[str], NoDecode] = []
    """web origins whose scripts may call the service, separated by commas, or *; none: no script of
    another origin"""
    trusted_proxies: Annotated[list[str], NoDecode] = []
    """addresses and networks whose X-Forwarded-For names the client, separated by commas; none: the
    header is ignored"""
    ui: bool = True
    """whether browsers get a page at / to search and read the indexes"""
    mcp: bool = False
    """whether agents can use the service at /mcp by the Model Context Protocol"""
    model_aliases: Annotated[list[str], NoDecode] = []
    """further model names that /v1 accepts, separated by commas"""

    drain_seconds: NonNegativeFloat = 5.0
    """seconds between SIGTERM, when /readyz turns 503, and closing the socket"""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """lowest severity that is logged"""
    log_format: Literal["json", "text"] = "json"
    """json: one object per line; text: for people"""

    otlp_endpoint: str | None = None
    """http:// or https:// URL of an OpenTelemetry collector; none: no traces"""
    trace_ratio: Annotated[float, Field(ge=0, le=1)] = 1.0
    """share of requests to trace where the request's traceparent does not decide"""

    @property
    def caches_are_separate(self) -> bool:
        """Whether each client has its own cache entries."""
        several = self.keys_file is not None or len(self.api_keys) > 1
        return several if self.cache_sharing == "auto" else self.cache_sharing == "separate"

    @field_validator(
        "bundle",
        "bundle_shares",
        "api_keys",
        "cors_origins",
        "trusted_proxies",
        "model_aliases",
        mode="before",
    )
    @classmethod
    def _split(cls, value: Any) -> Any:
        if isinstance(value, str | Path):
            value = [str(value)]
        if isinstance(value, list) and all(isinstance(v, str) for v in value):
            return [part.strip() for v in value for part in v.split(",") if part.strip()]
        return value

    @field_validator("bundle_shares")
    @classmethod
    def _one_for_each(cls, shares: list[float], info: ValidationInfo) -> list[float]:
        bundles = len(info.data.get("bundle", []))
        if shares and len(shares) != bundles:
            raise ValueError(f"must have one number for each of the {bundles} bundles")
        return shares

    @field_validator("max_inflight_bytes")
    @classmethod
    def _room_for_a_body(cls, most: int, info: ValidationInfo) -> int:
        body, values = (info.data.get(f"max_body_{unit}", 0) for unit in ("bytes", "values"))
        if most < (least := 2 * memory.needed(body, values)):
            raise ValueError(
                f"must be at least {least}, twice the memory that one body of max_body_bytes "
                f"({body}) and max_body_values ({values}) may take"
            )
        return most

    @field_validator("max_upload_disk_bytes")
    @classmethod
    def _room_for_an_upload(cls, most: int, info: ValidationInfo) -> int:
        if most < (least := 2 * info.data.get("max_upload_bytes", 0)):
            raise ValueError(f"must be at least {least}, twice max_upload_bytes")
        return most

    @field_validator("trusted_proxies")
    @classmethod
    def _networks(cls, proxies: list[str]) -> list[str]:
        for proxy in proxies:
            ipaddress.ip_network(proxy)
        return proxies

    @field_validator("cors_origins")
    @classmethod
    def _origins(cls, origins: list[str]) -> list[str]:
        for origin in origins:
            parts = urlsplit(origin)
            whole = f"{parts.scheme}://{parts.netloc}"
            if origin != "*" and (parts.scheme not in ("http", "https") or origin != whole):
                raise ValueError("each origin must be https://host, https://host:port or *")
        return origins

    @field_validator("mcp")
    @classmethod
    def _installed(cls, wanted: bool) -> bool:
        if wanted and find_spec("mcp") is None:
            raise ValueError("the protocol needs pip install 'docsplit[mcp]'")
        return wanted

    @field_validator("workers")
    @classmethod
    def _processes(cls, workers: int) -> int:
        if workers > 1 and os.name != "posix":
            raise ValueError("several processes need Linux or another Unix")
        return workers

    @field_validator("redis_url")
    @classmethod
    def _redis_scheme(cls, url: SecretStr | None) -> SecretStr | None:
        schemes = ("redis://", "rediss://", "unix://")
        if url is not None and not url.get_secret_value().startswith(schemes):
            raise ValueError(f"must start with one of {', '.join(schemes)}")
        if url is not None:
            # it takes a while to import
            from redis.asyncio import ConnectionPool

            pool: type[Any] = ConnectionPool
            try:
                # a connection that is never opened
                pool.from_url(url.get_secret_value()).make_connection()
            except (ValueError, TypeError, AttributeError):
                # the parser's message may hold a part of the password
                raise ValueError(
                    "cannot be read: give scheme://:PASSWORD@HOST:PORT/DATABASE, and write special "
                    "characters of the password as %XX"
                ) from None
        return url

    @field_validator("index_path")
    @classmethod
    def _folder_or_bucket(cls, path: str) -> str:
        if ("://" in path or path.startswith("s3:")) and not path.startswith("s3://"):
            raise ValueError("must be a folder, or a URI that starts with s3://")
        return path

    @field_validator("cache_secret")
    @classmethod
    def _hard_to_guess(cls, secret: SecretStr | None) -> SecretStr | None:
        if secret is not None and len(secret.get_secret_value()) < 32:
            raise ValueError("must have at least 32 characters")
        return secret

    @field_validator("otlp_endpoint")
    @classmethod
    def _collector(cls, url: str | None) -> str | None:
        if url is None:
            return None
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
            raise ValueError("must be an http:// or https:// URL with a host")
        if parts.username is not None or parts.query or parts.fragment:
            raise ValueError(
                "give scheme, host, port and path; keys go into OTEL_EXPORTER_OTLP_HEADERS"
            )
        return url

    @field_validator("api_keys")
    @classmethod
    def _long_enough(cls, keys: list[SecretStr]) -> list[SecretStr]:
        if any(len(key.get_secret_value()) < 16 for key in keys):
            raise ValueError("each key must have at least 16 characters")
        return keys
