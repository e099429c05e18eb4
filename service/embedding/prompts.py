"""The bundle's named prompts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from service.errors import InvalidError

if TYPE_CHECKING:
    from docsplit.bundles.manifest import Manifest

# names that encoders give to the prompt for a purpose
_NAMES = {
    "query": ("query", "search_query", "retrieval.query"),
    "document": ("document", "passage", "search_document", "retrieval.passage"),
    "classification": ("classification",),
    "clustering": ("clustering", "separation"),
}


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


def for_purpose(manifest: Manifest, purpose: str) -> str | None:
    """The name of the prompt for a purpose; None if the model has no prompt for it."""
    return next((name for name in _NAMES[purpose] if name in manifest.prompts), None)
