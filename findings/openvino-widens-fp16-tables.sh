#!/bin/sh
# OpenVINO on a CPU widens a table of fp16 to f32 in each compiled model, also where the model only looks rows up.
#
# With openvino 2026.4.1, a graph that is one Gather of rows from a table of 64 MB in fp16, compiled twice from one read model.
# Guess: the plugin keeps the constant as it is, mapped or shared, and widens the rows that it reads; a second compiled model
# takes no further table. Seen: each compiled model takes about 128 MB more, twice the table. The documents of the CPU device
# say that weights in fp16 are converted, not that they are so for a lookup and once for each model. The embeddings of a
# vocabulary of 250,000 tokens take 384 MB a model this way; as an input, rows cost a copy of some microseconds.
# Fails if that changes.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet openvino==2026.4.1 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" - <<'PY'
import numpy as np
import openvino
from openvino import opset13

TABLE = 64 << 20
EXPECTED = {"first model": "widened", "second model": "widened"}


def resident() -> int:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmRSS"))


ids = opset13.parameter([-1], np.int64, "ids")
table = np.random.default_rng(0).normal(size=(TABLE // 2 // 256, 256)).astype(np.float16)
rows = opset13.gather(opset13.constant(table), ids, opset13.constant(0))
model = openvino.Model([opset13.result(rows)], [ids], "lookup")
core = openvino.Core()
core.get_available_devices()
kept, seen = [], {}
for name in EXPECTED:
    before = resident()
    kept.append(core.compile_model(model, "CPU"))
    grown = resident() - before
    print(name, grown >> 20, "MB more")
    seen[name] = "widened" if grown > 1.5 * TABLE else "as it is"

print("openvino", openvino.__version__)
print("seen:", seen)
assert seen == EXPECTED, f"it changed, the finding is out of date: {EXPECTED}"
PY
