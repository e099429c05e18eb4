"""Registers maps of indexes: /indexes/{name}/map and /topics, and areas in searches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from features.maps.background import Mapping
from service.features import Feature

if TYPE_CHECKING:
    from fastapi import APIRouter, Request

    from service.index.documents import Index
    from service.index.query.filters import Where
    from service.server.bodies.fields import AreaIn
    from service.server.lifecycle import Service


class Maps(Feature):
    """Computes maps of indexes, and keeps them up to date."""

    name = "maps"

    def __init__(self, service: Service) -> None:
        super().__init__(service)
        self.mapping = Mapping(service.store, service.jobs, service.metrics)

    @staticmethod
    def routers() -> Sequence[APIRouter]:
        """The routes."""
        from features.maps import routes

        return (routes.router,)

    async def condition(self, index: Index, area: AreaIn) -> Where:
        """The condition that a document is inside an area of the map of its index.

        Raises:
            ConflictError: the index has another map, or none.
            InvalidError: too many documents are inside.
        """
        from features.maps.areas import Area

        return await self.mapping.inside(
            index, Area(area.map, tuple((x, y) for x, y in area.corners))
        )


FEATURE = Maps


def mapping_of(request: Request) -> Mapping:
    """The maps of the process that answers a request."""
    maps: Maps = request.app.state.service.features["maps"]
    return maps.mapping
