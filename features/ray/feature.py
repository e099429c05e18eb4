"""Registers Ray, for ``docsplit-index --ray``."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from service.features import Feature

if TYPE_CHECKING:
    from features.ray.cluster import Cluster
    from service.settings import Settings


class Ray(Feature):
    """Indexes on a cluster; it has no part in the service."""

    name = "ray"

    @staticmethod
    def cluster(address: str, actors: int, settings: Settings) -> AbstractContextManager[Cluster]:
        """See ``on_cluster``."""
        from features.ray.cluster import on_cluster

        return on_cluster(address, actors, settings)


FEATURE = Ray
