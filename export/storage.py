"""Hold graphs in memory and in files, also those that no protobuf message can hold."""

from __future__ import annotations

import errno
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx
from onnx.external_data_helper import save_external_data, set_external_data

if TYPE_CHECKING:
    import openvino as ov

# Of weights in one file. A protobuf message ends at 2 GiB, and the graph needs room, too.
MOST_BYTES = 2_000_000_000
# smaller constants stay in the graph, where shape inference reads them
_INSIDE = 1024


def copy(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of a graph of any size."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    return made


def fits(model: onnx.ModelProto) -> bool:
    """Whether one file can hold the graph."""
    return sum(len(tensor.raw_data) for tensor in model.graph.initializer) <= MOST_BYTES


def save(model: onnx.ModelProto, path: Path) -> None:
    """Write a graph, the same bytes for the same graph.

    The weights of a graph that fits no file go to ``<name>.data`` next to it, as ONNX's external
    data. This takes them out of ``model``.
    """
    if not fits(model):
        weights = path.with_name(f"{path.name}.data")
        weights.unlink(missing_ok=True)
        for tensor in model.graph.initializer:
            if len(tensor.raw_data) >= _INSIDE:
                set_external_data(tensor, weights.name)
                save_external_data(tensor, str(path.parent))
                tensor.ClearField("raw_data")
    path.write_bytes(model.SerializeToString(deterministic=True))


def save_openvino(model: ov.Model, path: Path) -> None:
    """Write a graph of OpenVINO's with the types that its weights have, and its ``.bin``.

    Raises:
        OSError: the disk is full or not writable.
    """
    import openvino as ov

    try:
        ov.save_model(model, path, compress_to_fp16=False)
    except RuntimeError as error:
        raise OSError(errno.EIO, f"could not be written ({error})", str(path)) from error


def open_session(model: onnx.ModelProto, options: Any) -> Any:
    """ONNX Runtime's session on the CPU for a graph in memory."""
    import onnxruntime as ort

    providers = ["CPUExecutionProvider"]
    if fits(model):
        return ort.InferenceSession(model.SerializeToString(), options, providers=providers)
    with tempfile.TemporaryDirectory(prefix="docsplit-export-") as folder:
        path = Path(folder) / "model.onnx"
        save(copy(model), path)
        return ort.InferenceSession(path, options, providers=providers)
