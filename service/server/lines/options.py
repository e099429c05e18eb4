"""The options of a request by lines, and what the API document says of it."""

from __future__ import annotations

from typing import Any, Self

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field, ValidationError

from service.errors import InvalidError
from service.server.bodies.encoding import EncodingFormat
from service.server.bodies.fields import CutSide, ModelName
from service.server.edge.bodies import NDJSON
from service.unknown import field_names, unknown_name


class LineOptions(BaseModel):
    """How all lines are embedded, and how vectors are written."""

    normalize: bool = True
    truncate: bool = False
    truncation_direction: CutSide = "right"
    dimensions: int | None = Field(None, ge=1)
    encoding_format: EncodingFormat = "float"
    prompt_name: str | None = None
    model: ModelName = None

    @classmethod
    def of_query(cls, request: Request) -> Self:
        """The options in the query of a path.

        Raises:
            RequestValidationError: one has a wrong type or value.
            InvalidError: one occurs twice, or is not known.
        """
        given = request.query_params
        if "windows" in given:
            raise InvalidError("query.windows: answers by lines have none; send JSON", "windows")
        if message := unknown_name(given, field_names(cls)):
            raise InvalidError(f"the query parameter {message}")
        if twice := [name for name in cls.model_fields if len(given.getlist(name)) > 1]:
            raise InvalidError(f"query.{twice[0]}: give it once", twice[0])
        try:
            return cls.model_validate(dict(given))
        except ValidationError as error:
            raise RequestValidationError(
                [{**one, "loc": ("query", *one["loc"])} for one in error.errors()]
            ) from None


NAMES = frozenset(LineOptions.model_fields)
_TEXT: dict[str, Any] = {"type": "string", "minLength": 1}
_LINE = {
    "description": "one line",
    "anyOf": [
        _TEXT,
        {"type": "object", "properties": {"inputs": _TEXT}, "required": ["inputs"]},
    ],
}


class LineResult(BaseModel):
    """The vector of a line."""

    index: int = Field(description="position of the line among those that are not blank, from 0")
    embedding: list[float] | str
    truncated: bool = False


class LineError(BaseModel):
    """The error of a line."""

    index: int
    status: int = Field(description="that a request with only this line would get")
    error: str
    error_type: str
    code: str | None


class LinesEnd(BaseModel):
    """The last line of an answer; with an error if the service did not read all lines."""

    lines: int
    errors: int
    tokens: int = Field(description="that the model read")
    status: int | None = None
    error: str | None = None
    error_type: str | None = None
    code: str | None = None


RESULTS = [model.model_json_schema() for model in (LineResult, LineError, LinesEnd)]
DOCUMENTED: dict[str, Any] = {
    "requestBody": {"content": {NDJSON: {"schema": _LINE}}},
    "parameters": [
        {
            "name": name,
            "in": "query",
            "required": False,
            "description": f"only with {NDJSON}: for all lines, as the field of that name",
            "schema": schema,
        }
        for name, schema in LineOptions.model_json_schema()["properties"].items()
    ],
}
