"""The base of all bodies that no other server has."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator

from service.unknown import field_names, unknown_name


class Body(BaseModel):
    """A body without unknown fields: a misspelt one would otherwise have no effect.

    Bodies that other servers take, too, ignore such fields, as those servers do.
    """

    model_config = ConfigDict(strict=True, json_schema_extra={"additionalProperties": False})

    @model_validator(mode="before")
    @classmethod
    def _known(cls, value: Any) -> Any:
        return cls.known(value)

    @classmethod
    def known(cls, value: Any) -> Any:
        """Refuse the first unknown field. ``extra="forbid"`` would make an error of each."""
        if isinstance(value, dict) and (message := unknown_name(value, field_names(cls))):
            raise ValueError(message)
        return value
