"""Heads of the bundle: small ONNX graphs, run by ONNX Runtime on the CPU."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np

from docsplit.bundles.format import Bundle
from docsplit.engines.telemetry import block_telemetry
from docsplit.heads.network import Floats, Kind
from docsplit.windowing.pooling import Vectors
from service.learning.store import Head

if TYPE_CHECKING:
    from onnxruntime import InferenceSession


HeadKind = Literal["classifier", "citation"]


class Graph:
    """A head's graph, with the interface of ``Network``.

    Args:
        content: of the ``.onnx`` file, because another training may replace the file.
        kind: its activation.
    """

    def __init__(self, content: bytes, kind: Kind) -> None:
        self._content = content
        self._kind: Kind = kind

    @property
    def kind(self) -> Kind:
        """The activation."""
        return self._kind

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of inputs and outputs."""
        session = self._session
        return session.get_inputs()[0].shape[1], session.get_outputs()[0].shape[1]

    def logits(self, inputs: Vectors) -> Vectors:
        """``[rows, inputs]`` to ``[rows, outputs]``."""
        return self._run("logits", inputs)

    def probabilities(self, inputs: Vectors) -> Floats:
        """Calibrated, ``[rows, outputs]``; rows of a softmax sum to 1."""
        return self._run("probabilities", inputs).astype(np.float64)

    def to_bytes(self) -> bytes:
        """The content of the ``.onnx`` file."""
        return self._content

    def _run(self, output: str, inputs: Vectors) -> Vectors:
        [found] = self._session.run([output], {"features": np.ascontiguousarray(inputs)})
        return np.asarray(found, dtype=np.float32)

    @cached_property
    def _session(self) -> InferenceSession:
        block_telemetry()
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        return onnxruntime.InferenceSession(
            self._content, options, providers=["CPUExecutionProvider"]
        )


def bundled(bundle: Bundle, kind: HeadKind) -> list[Head]:
    """The bundle's heads of a kind."""
    revision = bundle.manifest.revision
    return [
        Head(
            name=name,
            uid=bundle.manifest.files[head.file].sha256,
            revision=revision,
            labels=head.labels,
            report=head.report,
            network=Graph(bundle.path(head.file).read_bytes(), head.activation),
            bundled=True,
        )
        for name, head in bundle.manifest.heads.items()
        if head.kind == kind
    ]
