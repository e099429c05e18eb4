"""Read what a checkpoint's model card declares."""

import re
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import ModelCard
from sentence_transformers.util import load_file_path

from export.errors import ExportError

# SPDX identifiers of the hub's licence names, which are in lower case
_SPDX = {
    name.lower(): name
    for name in (
        "AFL-3.0",
        "AGPL-3.0",
        "Apache-2.0",
        "BSD-2-Clause",
        "BSD-3-Clause",
        "CC-BY-4.0",
        "CC-BY-NC-4.0",
        "CC-BY-NC-SA-4.0",
        "CC-BY-SA-4.0",
        "CC0-1.0",
        "GPL-3.0",
        "LGPL-3.0",
        "MIT",
        "MPL-2.0",
        "Unlicense",
    )
}
# what the hub writes if no identifier fits
_NONE = ("other", "unknown")
_DIMENSIONS = re.compile(r'"matryoshka_dims":\s*(\[[\d\s,]+\])')
# no length of a vector has more digits
_NUMBER = re.compile(r"\b\d{1,9}\b")


def read_card(source: str) -> str:
    """The text of the checkpoint's ``README.md``; empty without one."""
    path = load_file_path(source, "README.md")
    return "" if path is None else Path(path).read_text(encoding="utf-8", errors="replace")


def licence(source: str, card: str) -> str:
    """The SPDX identifier of the licence that a model card names.

    Raises:
        ExportError: the card names none.
    """
    try:
        named = ModelCard(card, ignore_metadata_errors=True).data.get("license")
    except (ValueError, yaml.YAMLError):
        named = None
    if not isinstance(named, str) or named.lower() in _NONE:
        raise ExportError(
            f"{source}: its model card names no licence; name the weights' licence with --licence"
        )
    return _SPDX.get(named.lower(), named)


def matryoshka(config: Any, card: str, dimensions: int) -> list[int]:
    """Lengths to which vectors may be cut, as the checkpoint declares them; the longest first.

    Jina writes them into ``config.json``. sentence-transformers writes the parameters of
    ``MatryoshkaLoss`` into the model card (Kusupati et al. 2022, arXiv:2205.13147).
    """
    declared = getattr(config, "matryoshka_dimensions", None)
    if declared is None:
        found = _DIMENSIONS.search(card)
        declared = [int(one) for one in _NUMBER.findall(found[1])] if found else []
    # config.json may hold anything
    lengths = declared if isinstance(declared, list) else []
    whole = {one for one in lengths if type(one) is int and 0 < one < dimensions}
    return sorted(whole, reverse=True)
