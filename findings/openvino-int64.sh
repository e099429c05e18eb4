#!/bin/sh
# OpenVINO computes int64 as int32 on the CPU, and the output is still called int64.
#
# With openvino 2026.4.1. Guess: an ONNX graph of int64 has the same numbers in both engines, or OpenVINO refuses it.
# Seen: above 2^31 numbers wrap in silence, also in a graph that only passes its input on: 2^31 - 1 plus 1 is negative, and
# 2^40 comes out as 0. Token ids, masks and positions are small; sums of products of them, hashes, times and ids of rows in
# a graph are not. Joined here: an exported graph and two engines.
# Fails if that changes.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet onnx==1.23.2 onnxruntime==1.31.1 openvino==2026.4.1 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" - <<'PY'
import io
import os

os.environ["OPENVINO_TELEMETRY"] = "0"
import numpy as np
import onnxruntime
import openvino
from onnx import TensorProto, helper, numpy_helper


def engines(operator: str, values, kind: int, constants=(), **attributes):
    """The output of a graph of one operator, by ONNX Runtime and by OpenVINO."""
    inputs = [numpy_helper.from_array(value, f"c{n}") for n, value in enumerate(constants)]
    node = helper.make_node(operator, ["x", *(one.name for one in inputs)], ["y"], **attributes)
    x = helper.make_tensor_value_info("x", kind, list(values.shape))
    y = helper.make_tensor_value_info("y", kind, None)
    graph = helper.make_graph([node], "g", [x], [y], inputs)
    opset = [helper.make_opsetid("", 18)]
    content = helper.make_model(graph, opset_imports=opset, ir_version=9).SerializeToString()
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    core = openvino.Core()
    compiled = core.compile_model(
        core.read_model(io.BytesIO(content)), "CPU", {"INFERENCE_PRECISION_HINT": "f32"}
    )
    given = {"x": values}
    return session.run(None, given)[0].tolist(), compiled(given)[0].tolist()


print("onnxruntime", onnxruntime.__version__, "openvino", openvino.__version__)

EXPECTED = {
    "Add 1": ([2147483648, 6], [-2147483648, 6]),
    "Identity": ([1099511627776], [0]),
    "ReduceSum": (4294967296, 0),
}
INT64 = TensorProto.INT64
one = np.array([1], np.int64)
seen = {
    "Add 1": engines("Add", np.array([2**31 - 1, 5], np.int64), INT64, [one]),
    "Identity": engines("Identity", np.array([2**40], np.int64), INT64),
    "ReduceSum": engines("ReduceSum", np.array([2**30, 3 * 2**30], np.int64), INT64, keepdims=0),
}
print("seen:", seen)
assert seen == EXPECTED, f"it changed, the finding is out of date: {EXPECTED}"
PY
