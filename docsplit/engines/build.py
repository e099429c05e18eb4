"""Build the chosen engine."""

from typing import Any

from docsplit.bundles.format import Folder
from docsplit.bundles.manifest import BundleError
from docsplit.engines.choice import Choice
from docsplit.engines.interface import Engine, EngineError
from docsplit.engines.onnx import Buckets, OnnxCpuEngine, OnnxCudaEngine, open_cuda
from docsplit.engines.openvino_cpu import OpenVinoEngine


def build(choice: Choice, bundle: Folder[Any], threads: int, streams: int) -> Engine:
    """Compile the chosen graph.

    Args:
        choice: from ``choose``.
        bundle: holds the graph.
        threads: CPU cores to compute on.
        streams: batches at once on a CPU; a CUDA engine decides for itself.

    Raises:
        EngineError: the bundle lacks the graph, or the runtime refuses it.
    """
    try:
        graph = bundle.graph(choice.graph)
    except BundleError as error:
        raise EngineError(str(error)) from error
    if choice.engine == "onnx-cuda":
        return OnnxCudaEngine(open_cuda(graph), buckets(bundle))
    if choice.engine == "onnx-cpu":
        return OnnxCpuEngine(graph, choice.arithmetic, threads, streams)
    return OpenVinoEngine(graph, choice.arithmetic, threads, streams)


def buckets(bundle: Folder[Any]) -> Buckets:
    """The shapes that batches of this bundle are rounded up to on a device."""
    return Buckets(bundle.manifest.max_tokens, bundle.manifest.pad_token_id)
