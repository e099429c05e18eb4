"""The bundles that a process serves: it opens all, and loads all but the first one when needed."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator, Sequence
from contextvars import Context
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import structlog

from docsplit.bundles.format import Bundle, RerankerBundle, load, load_reranker
from docsplit.bundles.manifest import NAME, BundleError
from docsplit.engines.choice import ChoiceError, Processor
from service.embedding.batching.shares import Shares
from service.embedding.cache.layers import Tenants
from service.embedding.embedder import Document, UnusableInputError
from service.errors import NotFoundError, UnavailableError
from service.learning.trainings import Teacher
from service.metrics import Metrics
from service.server.encoder import Encoder, Running
from service.server.reranking import Reranking
from service.settings import Settings

if TYPE_CHECKING:
    from service.index.reembed import Embed

log = structlog.get_logger("docsplit")


# a bundle's own name has no colon
FORMER = ":former"


class Bundles(NamedTuple):
    """The bundles of a service.

    Attributes:
        encoders: by the names that requests and indexes know them by; the default one first. The
            last one is ``FORMER``, if there is one.
    """

    encoders: dict[str, Bundle]
    reranker: RerankerBundle | None = None

    @property
    def former(self) -> str | None:
        """The name of the bundle that the default one succeeds; no request names it."""
        return FORMER if FORMER in self.encoders else None

    @property
    def revisions(self) -> tuple[str, ...]:
        """Their revisions."""
        found = (*self.encoders.values(), self.reranker)
        return tuple(bundle.manifest.revision for bundle in found if bundle is not None)


def open_bundles(settings: Settings, *, revisions: tuple[str, ...] | None = None) -> Bundles:
    """Open the bundles.

    Args:
        settings: name their folders.
        revisions: of bundles that another process has verified; without them, every file is
            compared with its digest.

    Raises:
        BundleError: a bundle is unusable, it changed after it was verified, or two bundles have
            one name or one revision.
    """
    verify = revisions is None
    encoders: dict[str, Bundle] = {}
    for name, folder in map(_named, settings.bundle):
        bundle = load(folder, verify=verify)
        _add(encoders, name or bundle.manifest.name, bundle)
    if settings.former_bundle is not None:
        _add(encoders, FORMER, load(settings.former_bundle, verify=verify))
    reranker = None
    if settings.reranker is not None:
        reranker = load_reranker(settings.reranker, verify=verify)
    found = Bundles(encoders, reranker)
    if revisions is not None and found.revisions != revisions:
        folders = [*settings.bundle, *([str(settings.reranker)] if settings.reranker else [])]
        raise BundleError(f"{' or '.join(folders)}: changed after the service started")
    return found


def open_one(settings: Settings) -> Bundles:
    """Open the bundle of a command that works with one.

    Raises:
        BundleError: the settings name several, or it is unusable.
    """
    if len(settings.bundle) > 1:
        raise BundleError(
            "bundle (--bundle, DOCSPLIT_BUNDLE): this command works with one bundle: name only "
            "that of the index"
        )
    return open_bundles(settings.model_copy(update={"reranker": None, "former_bundle": None}))


def _named(given: str) -> tuple[str | None, Path]:
    """The name and the folder of ``NAME=PATH``, or only the folder."""
    name, equals, folder = given.partition("=")
    if equals and re.fullmatch(NAME, name):
        return name, Path(folder)
    return None, Path(given)


def _add(encoders: dict[str, Bundle], name: str, bundle: Bundle) -> None:
    if name in encoders:
        raise BundleError(
            f"{bundle.root}: another bundle is served as {name!r}: name one of them with "
            "--bundle NAME=PATH"
        )
    for other, held in encoders.items():
        if held.manifest.revision == bundle.manifest.revision:
            raise BundleError(
                f"{bundle.root}: {other!r} is the same bundle: leave one of them out, or give "
                "further names of the first bundle as model_aliases"
            )
    encoders[name] = bundle


class ModelUnusableError(UnavailableError, code="model_unusable"):
    """The engine of a bundle did not start."""

    def __init__(self) -> None:
        super().__init__("the engine of this model does not start: the log of the service says why")


class ModelTooLargeError(UnavailableError, code="model_too_large"):
    """A bundle does not fit into the memory that the settings allow."""

    def __init__(self, needed: int, loaded: int, most: int) -> None:
        super().__init__(
            f"this model needs about {needed:,} bytes, the loaded ones take {loaded:,}, and "
            f"max_bundle_bytes allows {most:,}: use a loaded model, or ask the operator for more "
            "memory"
        )


class Encoders:
    """The served bundles by name.

    Args:
        tenants: keeps the cached vectors of separate clients apart.
        cache_bytes: memory for the cached vectors of all bundles.

    Attributes:
        default: serves requests that name no model; its owner loads it, and this class the others.

    Raises:
        ChoiceError: no engine can meet the settings on this machine.
        ValueError: the default bundle does not fit into the memory for bundles, an alias is the
            name of another bundle, or the prompts of a bundle do not fit its windows.
    """

    def __init__(
        self,
        bundles: Bundles,
        settings: Settings,
        processor: Processor,
        metrics: Metrics,
        tenants: Tenants,
        cache_bytes: int,
    ) -> None:
        self.reranking: Reranking | None = None
        if bundles.reranker is not None:
            self.reranking = Reranking(bundles.reranker, settings, processor)
        encoders: list[Encoder] = []
        shares = Shares(settings.threads or processor.cores)
        weights = settings.bundle_shares or [1.0] * len(settings.bundle)
        if bundles.former is not None:
            weights = [*weights, weights[0]]
        for (name, bundle), weight in zip(bundles.encoders.items(), weights, strict=True):
            first = not encoders
            try:
                encoder = Encoder(
                    name,
                    bundle,
                    settings,
                    processor,
                    metrics,
                    tenants,
                    int(cache_bytes * weight / sum(weights)),
                    shares,
                    weight,
                    reranking=self.reranking if first else None,
                    default=first,
                )
            except (ChoiceError, ValueError) as error:
                if len(bundles.encoders) == 1:
                    raise
                raise type(error)(f"bundle {name}: {error}") from error
            encoders.append(encoder)
        aliases, most_bytes = settings.model_aliases, settings.max_bundle_bytes
        self.default = encoders[0]
        self.aliases = list(aliases)
        self._by_name = {one.name: one for one in encoders if one.name != FORMER}
        self._by_revision = {encoder.revision: encoder for encoder in encoders}
        self._most_bytes = most_bytes
        # those that are loaded or being loaded
        self._loaded: list[Encoder] = []
        self._loading: dict[str, asyncio.Task[Running | None]] = {}
        self._speeding_up: set[asyncio.Task[None]] = set()
        for encoder in encoders[1:]:
            if encoder.name in aliases:
                raise ValueError(f"model_aliases: {encoder.name!r} is the name of a further bundle")
        if most_bytes and self.default.memory_bytes > most_bytes:
            raise ValueError(
                f"max_bundle_bytes: the first bundle needs about {self.default.memory_bytes}"
            )

    def __iter__(self) -> Iterator[Encoder]:
        """All of them, the default one first, the former one last."""
        return iter(self._by_revision.values())

    def __len__(self) -> int:
        """The number of bundles that requests may name."""
        return len(self._by_name)

    @property
    def names(self) -> list[str]:
        """The names that ``model`` in a request accepts."""
        return [*self._by_name, *self.aliases]

    @property
    def revisions(self) -> list[str]:
        """The revisions of all bundles."""
        return list(self._by_revision)

    def named(self, name: str | None) -> Encoder:
        """A bundle by its name or alias; the default one without a name.

        Raises:
            NotFoundError: no bundle has that name.
        """
        if name is None or name in self.aliases:
            return self.default
        if name not in self._by_name:
            raise NotFoundError(
                f"no such model here; GET /v1/models lists: {', '.join(self.names)}. The setting "
                "model_aliases serves the first under further names",
                param="model",
                code="model_not_found",
            )
        return self._by_name[name]

    def serves(self, name: str | None) -> bool:
        """Whether ``named`` finds a bundle of that name."""
        return name is None or name in self.names

    def of(self, revision: str) -> Encoder | None:
        """The bundle of a revision; None if the service does not serve it."""
        return self._by_revision.get(revision)

    async def running(self, encoder: Encoder) -> Running:
        """The engine of a bundle; the first call loads it, and goes on if its caller leaves.

        Raises:
            ModelTooLargeError: there is no memory left for it.
            ModelUnusableError: its engine does not start.
        """
        if encoder.running is not None:
            return encoder.running
        if encoder.failed:
            raise ModelUnusableError
        if encoder.name not in self._loading:
            self._take_room(encoder)
            # the load outlives the request, its span and the entries of its log lines
            load = asyncio.create_task(self._load(encoder), name="load", context=Context())
            self._loading[encoder.name] = load
        running = await asyncio.shield(self._loading[encoder.name])
        if running is None:
            raise ModelUnusableError
        return running

    async def teacher(self, name: str | None) -> Teacher:
        """The bundle of a name as trainings need it, see ``Teachers``."""
        encoder = self.named(name)
        return Teacher(encoder.revision, (await self.running(encoder)).background)

    def reembedder(self, revision: str) -> Embed:
        """Embeds stored texts for a served revision; loads the bundle when it is called."""
        encoder = self._by_revision[revision]

        async def embed(texts: Sequence[str]) -> list[Document | UnusableInputError]:
            return await (await self.running(encoder)).reembedder(texts)

        return embed

    async def close(self) -> None:
        """Wait for the bundles that are being loaded, and stop all engines."""
        await asyncio.gather(*self._loading.values(), return_exceptions=True)
        await asyncio.gather(*self._speeding_up, return_exceptions=True)
        for encoder in self:
            await encoder.close()

    def _take_room(self, wanted: Encoder) -> None:
        loaded = sum(
            encoder.memory_bytes for encoder in self if encoder in (self.default, *self._loaded)
        )
        if self._most_bytes and loaded + wanted.memory_bytes > self._most_bytes:
            raise ModelTooLargeError(wanted.memory_bytes, loaded, self._most_bytes)
        self._loaded.append(wanted)

    async def _load(self, encoder: Encoder) -> Running | None:
        started = time.monotonic()
        try:
            running = await encoder.start()
        except Exception:  # noqa: BLE001 it is logged, and the request answers 503
            self._loaded.remove(encoder)
            return None
        finally:
            del self._loading[encoder.name]
        seconds = round(time.monotonic() - started, 2)
        log.info(
            "model_loaded", memory_bytes=encoder.memory_bytes, seconds=seconds, **encoder.summary
        )
        task = asyncio.create_task(encoder.speed_up())
        self._speeding_up.add(task)
        task.add_done_callback(self._speeding_up.discard)
        return running
