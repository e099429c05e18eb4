"""The examples of a retraining, with the labels that people gave."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from fastapi import Request

from docsplit.heads.examples import Examples
from docsplit.windowing.pooling import Vectors
from service.keys.file import Right
from service.server.edge import rights
from service.server.routes import inference

if TYPE_CHECKING:
    from service.learning.labels import Labelled


async def given(request: Request, classifier: str) -> list[Labelled]:
    """A classifier's labelled documents.

    Raises:
        ForbiddenError: the key may not read one of their indexes.
    """
    service = inference.service_of(request)
    labelled = await (await service.heads.labels()).all(classifier)
    if labelled:
        aliases = await (await service.store.indexes()).aliases.all()
        for index in {aliases.get(one.index, one.index) for one in labelled}:
            rights.require(request, Right.READ_INDEXES, index)
    return labelled


async def gathered(
    request: Request,
    stored: Examples | None,
    labelled: list[Labelled],
    multi_label: bool | None,
    reserve: Callable[[int], None],
) -> tuple[Examples, list[Vectors | None]]:
    """The examples of a retraining, see ``service.learning.gathering.gather``."""
    from service.learning.gathering import gather

    indexes = await inference.service_of(request).store.indexes()
    return await gather(indexes, stored, labelled, multi_label, reserve)
