"""Put heads into a bundle: small ONNX graphs on the vectors of whole documents."""

import hashlib
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from docsplit.bundles import format as bundle
from docsplit.bundles.manifest import HEADS, BundleError, FileEntry, Head, Manifest
from docsplit.heads.citation import SIGNALS
from docsplit.heads.network import Network
from docsplit.heads.pairs import FEATURES
from export.errors import ExportError

OPSET = 17
TOLERANCE = 1e-5
_ROWS = 256


def head_graph(network: Network) -> onnx.ModelProto:
    """``features`` to ``logits`` and ``probabilities``, with a dynamic batch."""
    nodes, constants = [], []
    value = "features"
    last = len(network.weights) - 1
    for layer, (weight, bias) in enumerate(zip(network.weights, network.biases, strict=True)):
        constants.append(numpy_helper.from_array(weight, f"weight{layer}"))
        constants.append(numpy_helper.from_array(bias, f"bias{layer}"))
        output = "logits" if layer == last else f"hidden{layer}"
        inputs = [value, f"weight{layer}", f"bias{layer}"]
        nodes.append(helper.make_node("Gemm", inputs, [output], f"gemm{layer}"))
        value = output
        if layer != last:
            value = f"active{layer}"
            nodes.append(helper.make_node("Relu", [output], [value], f"relu{layer}"))
    constants.append(
        numpy_helper.from_array(np.array(network.temperature, np.float32), "temperature")
    )
    nodes.append(helper.make_node("Div", ["logits", "temperature"], ["scaled"], "scale"))
    if network.kind == "softmax":
        nodes.append(helper.make_node("Softmax", ["scaled"], ["probabilities"], "softmax", axis=-1))
    else:
        nodes.append(helper.make_node("Sigmoid", ["scaled"], ["probabilities"], "sigmoid"))
    width, labels = network.weights[0].shape[0], network.weights[-1].shape[1]
    graph = helper.make_graph(
        nodes,
        "head",
        [helper.make_tensor_value_info("features", TensorProto.FLOAT, ["batch", width])],
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", labels])
            for name in ("logits", "probabilities")
        ],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    return model


def add_head(
    root: Path,
    name: str,
    network: Network,
    *,
    kind: Literal["classifier", "citation"],
    labels: list[str],
    report: dict[str, Any],
) -> Manifest:
    """Put a head into a bundle. It replaces a head of the same name.

    The bundle keeps its revision, because no vector changes. The bundle is valid at every moment,
    even while a service uses it.

    Args:
        root: folder of the bundle.
        name: name of the head; lower-case letters, digits, ``-`` and ``_``.
        network: its inputs are the bundle's dimensions (classifier); the ``FEATURES`` of a pair,
            or ``[u; v; u * v]`` and ``SIGNALS`` more (citation).
        labels: outputs in order.
        report: measurements of the training.

    Raises:
        BundleError: the bundle is not valid, or the head does not fit it.
        ExportError: the graph differs from the network.
    """
    manifest = bundle.load(root).manifest
    fitting = [manifest.dimensions]
    if kind == "citation":
        fitting = [FEATURES, 3 * manifest.dimensions + SIGNALS]
    inputs, outputs = network.weights[0].shape[0], network.weights[-1].shape[1]
    if inputs not in fitting or outputs != len(labels):
        raise BundleError(
            f"{root}: head {name!r} maps {inputs} values to {outputs} labels, not "
            f"{' or '.join(map(str, fitting))} to {len(labels)}"
        )
    blob = head_graph(network).SerializeToString()
    _check(blob, network, inputs)
    digest = hashlib.sha256(blob).hexdigest()
    file = f"{HEADS}/{name}.{digest[:12]}.onnx"
    entry = Head(file=file, kind=kind, activation=network.kind, labels=labels, report=report)
    former = manifest.heads.get(name)
    files = {k: v for k, v in manifest.files.items() if former is None or k != former.file}
    files[file] = FileEntry(sha256=digest, bytes=len(blob))
    # validated before anything is written
    made = bundle.validated(
        root, manifest.model_dump() | {"heads": {**manifest.heads, name: entry}, "files": files}
    )
    (root / HEADS).mkdir(exist_ok=True)
    bundle.replace(root / file, blob)
    try:
        bundle.write(root, made)
    except OSError:
        if file not in manifest.files:
            (root / file).unlink()
        raise
    if former is not None and former.file != file:
        (root / former.file).unlink()
    return made


def _check(blob: bytes, network: Network, inputs: int) -> None:
    import onnxruntime

    rows = np.random.default_rng(0).standard_normal((_ROWS, inputs)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    session = onnxruntime.InferenceSession(blob, providers=["CPUExecutionProvider"])
    [found] = session.run(["probabilities"], {"features": rows})
    worst = float(np.abs(found - network.probabilities(rows)).max())
    # this form also rejects NaN
    if not worst <= TOLERANCE:
        raise ExportError(f"the head's graph differs from its network by {worst:.2g}")
