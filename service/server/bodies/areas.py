"""Areas of maps in bodies of searches."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from service.server.bodies.body import Body

MOST_CORNERS = 256
# positions on maps are far below it
_FARTHEST = 1e9

Coordinate = Annotated[float, Field(ge=-_FARTHEST, le=_FARTHEST)]
Corner = Annotated[list[Coordinate], Field(min_length=2, max_length=2, description="x and y")]


class AreaIn(Body):
    """A polygon on the index's map."""

    map: str = Field(max_length=64, description="`version` of the map")
    corners: list[Corner] = Field(min_length=3, max_length=MOST_CORNERS, fail_fast=True)
