"""The base of what ``bundle.json`` holds."""

from pydantic import BaseModel, ConfigDict


class Strict(BaseModel):
    """Rejects unknown fields and numbers that are not finite; cannot change."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
