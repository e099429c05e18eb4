"""A bundle of another revision."""

from __future__ import annotations

import shutil
from pathlib import Path

from docsplit.bundles import format as bundle
from docsplit.bundles.format import DEFAULT_BUNDLE


def seal_other(folder: Path, source: Path = DEFAULT_BUNDLE) -> str:
    """Make a copy of a bundle with another prompt before every window; return its revision."""
    shutil.copytree(source, folder)
    fields = dict(bundle.load(folder).manifest)
    for computed in ("files", "revision"):
        del fields[computed]
    changed = {"prompts": {"other": "something else: "}, "default_prompt": "other"}
    return bundle.seal(folder, **fields | changed).revision
