"""From the service's archive of a network to a graph in the bundle."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, Literal

import numpy as np

from bundles.manifest import Manifest
from export.heads import Perceptron, add_head


def perceptron(archive: bytes) -> Perceptron:
    """The network of an ``.npz`` archive, as ``GET /classifiers/{name}/network`` answers it."""
    with np.load(io.BytesIO(archive), allow_pickle=False) as held:
        layers = range(sum(name.startswith("weight") for name in held.files))
        return Perceptron(
            [held[f"weight{i}"] for i in layers],
            [held[f"bias{i}"] for i in layers],
            float(held["temperature"]),
            "sigmoid" if str(held["kind"]) == "sigmoid" else "softmax",
        )


def into_bundle(
    bundle: Path,
    name: str,
    kind: Literal["classifier", "citation"],
    archive: bytes,
    labels: list[str],
    report: dict[str, Any],
) -> Manifest:
    """Put a network into a bundle.

    Raises:
        BundleError, ExportError: it does not fit, or its graph differs from it.
    """
    return add_head(bundle, name, perceptron(archive), kind=kind, labels=labels, report=report)
