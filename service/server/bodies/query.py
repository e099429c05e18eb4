"""Queries of several routes, and the places in documents that answers name."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, Field, model_validator

from service.server.bodies.body import Body
from service.server.bodies.fields import TEXT
from service.server.bodies.names import Identifier, optional_text

Source = Literal["given", "found", "both"]


class QueryIn(Body):
    """One of several queries."""

    text: Annotated[str | None, BeforeValidator(optional_text), TEXT] = Field(
        None, description="a document of any length; or give id"
    )
    id: Identifier | None = Field(None, description="a document of the index; it is left out")

    @model_validator(mode="after")
    def _text_or_id(self) -> QueryIn:
        if (self.text is None) == (self.id is None):
            raise ValueError("give either text or id")
        return self


class Span(BaseModel):
    """Characters of a document, counted in Unicode code points."""

    start: int
    end: int


class Place(Span):
    """Characters of a stored document, and where they begin in the file that it came from."""

    page: int | None = Field(None, description="from 1")
    heading: str | None = Field(None, description="the last one up to there")
