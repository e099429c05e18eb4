#!/bin/sh
# OpenVINO's Relu and Clip turn NaN into a number; ONNX Runtime keeps it.
#
# With openvino 2026.4.1 and onnxruntime 1.31.1. Guess: NaN stays NaN in both, so a test of the output for finite numbers
# finds a graph that broke inside. Seen: OpenVINO's Relu makes 0 of it, and Clip the lowest number. A graph whose first
# layers overflow in half precision then gives finite, wrong vectors by one engine and NaN by the other, and only a
# comparison of vectors shows it. Joined here: an exported graph and two engines.
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

LOWEST = float(np.finfo("f").min)
EXPECTED = {"Relu": (["nan", 0.0], [0.0, 0.0]), "Clip": (["nan", 5.0], [LOWEST, 5.0])}
nan = float("nan")


def named(values):
    return ["nan" if value != value else abs(value) if value == 0 else value for value in values]


seen = {
    "Relu": tuple(map(named, engines("Relu", np.array([nan, -1], "f"), TensorProto.FLOAT))),
    "Clip": tuple(map(named, engines("Clip", np.array([nan, 5], "f"), TensorProto.FLOAT))),
}
print("seen:", seen)
assert seen == EXPECTED, f"it changed, the finding is out of date: {EXPECTED}"
PY
