"""The bundles that a process serves; it loads all but the first one when they are needed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextvars import Context
from typing import TYPE_CHECKING

import structlog

from service.embedding.embedder import Document, UnusableInputError
from service.errors import NotFoundError, UnavailableError
from service.learning.trainings import Teacher
from service.server.encoder import Encoder, Running

if TYPE_CHECKING:
    from service.index.reembed import Embed

log = structlog.get_logger("docsplit")


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
        encoders: the default one first; it is loaded by its owner, the others here.
        aliases: further names of the default one.
        most_bytes: most memory of all loaded bundles, as estimated; 0: no limit.

    Attributes:
        default: serves requests that name no model.

    Raises:
        ValueError: the default one does not fit, or an alias is the name of another bundle.
    """

    def __init__(
        self, encoders: Sequence[Encoder], aliases: Sequence[str], most_bytes: int
    ) -> None:
        self.default = encoders[0]
        self.aliases = list(aliases)
        self._by_name = {encoder.name: encoder for encoder in encoders}
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
        """All of them, the default one first."""
        return iter(self._by_name.values())

    def __len__(self) -> int:
        """The number of bundles."""
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
                f"no such model here; GET /v1/models lists: {', '.join(self.names)}",
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
