"""A bundle of the default bundle's start weights, which a package holds.

Tests compare what a service computes with what sentence-transformers computes by the same weights.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from filelock import FileLock

from benchmarks.rig import documents
from benchmarks.rig.start_bundle import OPTIONS, installed_start


def export_start(folder: Path) -> Path:
    """Export the weights with windows of 512 tokens, unless another test process has done so.

    Args:
        folder: of all test processes of this run.

    Returns:
        The folder of the bundle.
    """
    made = folder / "start-weights"
    with FileLock(folder / "start-weights.lock"):
        if not made.exists():
            _export(made)
    return made


def _export(made: Path) -> None:
    from export import texts as passages
    from export.__main__ import main

    texts = made.with_suffix(".txt")
    # short ones, and few to calibrate with: the export takes a quarter of the time
    every = documents.read(documents.PEPS, sys.maxsize)
    texts.write_text("\n".join(" ".join(one.split()[80:140]) for one in every), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passages, "CALIBRATION", 64)
        fewer = ("--paragraphs", "200", "--calibration", str(texts))
        assert main([str(installed_start()), str(made), *OPTIONS, *fewer]) == 0
