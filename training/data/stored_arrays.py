"""Arrays in the folder of a run, from which an interrupted run goes on."""

from dataclasses import fields
from pathlib import Path
from typing import Any, Self

import numpy as np


class StoredArrays:
    """The base of dataclasses of arrays with ``made_from``, the text that says what they depend
    on."""

    made_from: str

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read what ``save`` wrote."""
        with np.load(path) as held:
            names = [field.name for field in fields(cls)]  # type: ignore[arg-type]
            read: dict[str, Any] = {name: held[name] for name in names}
        return cls(**read | {"made_from": str(read["made_from"])})

    def save(self, path: Path) -> None:
        """Write to an ``.npz`` file, all or nothing."""
        partial = path.with_name(f"partial-{path.name}")
        np.savez(partial, **vars(self))
        partial.replace(path)
