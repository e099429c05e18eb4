#!/bin/sh
# A constant in fp16 puts the distances 16, 32 and 64 of two tokens into the wrong bucket.
#
# Encoders with relative positions (MPNet, T5) take the bucket of a distance by its logarithm over log 16. Guess: fp16 only
# rounds activations, and the errors of a vector stay near 1e-3. Seen, with onnxruntime 1.31.1 in a graph of that formula:
# log 16 is 2.7734 in place of 2.7726, exact powers of two fall one bucket short, and their learnt bias is that of another
# distance. In a real encoder a whole text then differs (cosine .998), while the mean over many texts looks right.
# Fails if that changes.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet onnx==1.23.2 onnxruntime==1.31.1 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" - <<'PY'
import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

EXPECTED = {"all in fp16": [16, 32, 64], "only the constant": [16, 32, 64]}
DISTANCES = np.arange(8, 128)


def buckets(kind: int, number, divisor) -> np.ndarray:
    nodes = [
        helper.make_node("Log", ["x"], ["log"]),
        helper.make_node("Div", ["log", "divisor"], ["share"]),
        helper.make_node("Mul", ["share", "eight"], ["place"]),
        helper.make_node("Cast", ["place"], ["bucket"], to=TensorProto.INT64),
    ]
    constants = [
        numpy_helper.from_array(np.array(divisor, number), "divisor"),
        numpy_helper.from_array(np.array(8, number), "eight"),
    ]
    x = helper.make_tensor_value_info("x", kind, ["n"])
    y = helper.make_tensor_value_info("bucket", TensorProto.INT64, ["n"])
    graph = helper.make_graph(nodes, "g", [x], [y], constants)
    content = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    session = onnxruntime.InferenceSession(
        content.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(None, {"x": (DISTANCES / 8).astype(number)})[0]


true = buckets(TensorProto.FLOAT, np.float32, np.log(16))
half = buckets(TensorProto.FLOAT16, np.float16, np.log(16))
constant = buckets(TensorProto.FLOAT, np.float32, np.float16(np.log(16)))
print("onnxruntime", onnxruntime.__version__, "distances in a wrong bucket:")
seen = {
    "all in fp16": DISTANCES[half != true].tolist(),
    "only the constant": DISTANCES[constant != true].tolist(),
}
print("seen:", seen)
assert seen == EXPECTED, f"it changed, the finding is out of date: {EXPECTED}"
PY
