"""The bundle's named prompts."""

from bundles.manifest import Manifest
from service.errors import InvalidError


def resolve(manifest: Manifest, name: str | None) -> str:
    """The text before every window: the prompt ``name``, else the default prompt, else nothing."""
    wanted = name if name is not None else manifest.default_prompt
    if wanted is None:
        return ""
    if wanted not in manifest.prompts:
        known = ", ".join(sorted(manifest.prompts)) or "none"
        raise InvalidError(
            f"prompt_name: this model has no such prompt; it has: {known}", "prompt_name"
        )
    return manifest.prompts[wanted]
