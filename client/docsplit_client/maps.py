"""What the service answers about maps of indexes."""

from __future__ import annotations

from typing import Literal, TypedDict


class JobStep(TypedDict):
    """How far the computation of a map is: a step, and the share of it that is done."""

    name: Literal["waiting", "reading", "layout", "placing", "topics", "writing"]
    done: float


class MapHead(TypedDict):
    """The state of a map; ``placed`` and ``unplaced`` count documents that are newer than it."""

    made: str
    version: str
    total: int
    placed: int
    unplaced: int
    stale: float


class FieldValues(TypedDict):
    """Values of a field; ``codes`` is base64 of int32, positions in ``values`` or -1."""

    field: str
    values: list[str | int | bool]
    codes: str


class MapLabels(TypedDict):
    """Labels by a classifier; ``pending`` counts the documents that later calls label.

    ``codes`` is base64 of int32, positions in ``labels`` or -1, and ``scores`` base64 of float32,
    the probabilities of these labels.
    """

    classifier: str
    labels: list[str]
    codes: str
    scores: str
    pending: int


class DocumentMap(MapHead):
    """Documents on the map, in the order of their ids; ``next`` is None at the end.

    ``positions`` is base64 of float32, x and y of each document in turn. ``topics`` is base64 of
    int32, the number of each document's topic or -1. Both are little-endian.
    """

    ids: list[str]
    positions: str
    topics: str
    values: FieldValues | None
    labels: MapLabels | None
    next: str | None


class Topic(TypedDict):
    """A group of similar documents; ``centre`` is None if all of them are deleted."""

    topic: int
    name: str
    words: list[str]
    size: int
    centre: list[float] | None
    examples: list[str]


class Topics(MapHead):
    """The topics of a map; ``without`` counts the documents that have none."""

    topics: list[Topic]
    without: int
