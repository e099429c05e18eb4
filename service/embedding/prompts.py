"""The bundle's named prompts."""

from __future__ import annotations

from bundles.manifest import Manifest
from service.errors import InvalidError


def resolve(manifest: Manifest, name: str | None) -> str:
    """The text put before every window: of ``name``, of the default prompt, or none."""
    wanted = name if name is not None else manifest.default_prompt
    if wanted is None:
        return ""
    if wanted not in manifest.prompts:
        known = ", ".join(sorted(manifest.prompts)) or "none"
        raise InvalidError(
            f"prompt_name is not known to this model; it has: {known}", "prompt_name"
        )
    return manifest.prompts[wanted]
