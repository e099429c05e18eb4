"""The base of all bodies that no other server has."""

from __future__ import annotations

from functools import cache
from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator

from service.unknown import unknown_name


class Body(BaseModel):
    """A body without unknown fields: a misspelt one would otherwise have no effect.

    Bodies that other servers take, too, ignore such fields, as those servers do.
    """

    model_config = ConfigDict(strict=True, json_schema_extra={"additionalProperties": False})

    @model_validator(mode="before")
    @classmethod
    def _known(cls, value: Any) -> Any:
        """Refuse the first unknown field. ``extra="forbid"`` would make an error of each."""
        if isinstance(value, dict) and (message := unknown_name(value, _names(cls))):
            raise ValueError(message)
        return value


@cache
def _names(body: type[Body]) -> tuple[str, ...]:
    return tuple(field.alias or name for name, field in body.model_fields.items())
