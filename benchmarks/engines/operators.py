"""Where OpenVINO's time goes: each kind of operator of a bundle's graph, and its share of the peak.

``python -m benchmarks.engines.operators BUNDLE --precision int8``

The graph runs on one thread, as a stream of the service does. The table has the fastest of all
rounds for each operator. The peak is the speed of one product of matrices in the same precision, by
the same runtime.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, get_args

import numpy as np
import openvino as ov
from openvino import opset13 as ops

from benchmarks.rig.markdown import table
from docsplit.bundles.format import load
from docsplit.engines.choice import Arithmetic, choose, detect
from docsplit.engines.openvino_cpu import floating, openvino_core

# large enough to hide reads and writes, small enough to end before another program interrupts it
PEAK = 512
_PRODUCTS = ("FullyConnected", "MatMul")


@dataclass
class Kind:
    """Operators of one kind in one implementation."""

    count: int = 0
    milliseconds: float = 0.0
    multiplications: int = 0


def main() -> None:
    """Measure and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--precision", choices=get_args(Arithmetic), default="int8")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--shapes", nargs="+", type=_shape, default=[(16, 128), (8, 512)])
    given = parser.parse_args()
    opened = load(given.bundle)
    manifest = opened.manifest
    choice = choose("openvino", given.precision, detect(), manifest.precisions)
    graph = opened.graph(choice.graph)
    core = openvino_core()
    hint = floating(choice.arithmetic, core.get_property("CPU", "OPTIMIZATION_CAPABILITIES"))
    settings = {"INFERENCE_NUM_THREADS": 1, "PERF_COUNT": True, "INFERENCE_PRECISION_HINT": hint}
    product = _product(choice.arithmetic)
    values = np.random.default_rng(0).normal(size=(PEAK, PEAK)).astype(np.float32)
    found = _profile(core, product, [values], settings, 10 * given.rounds)
    largest = max(found.values(), key=lambda kind: kind.multiplications)
    peak = largest.multiplications / largest.milliseconds
    print(f"peak, {PEAK:,} x {PEAK:,}: {peak / 1e6:,.0f} G multiplications/s\n")
    for rows, tokens in given.shapes:
        model = core.read_model(graph)
        model.reshape({one.any_name: [rows, tokens] for one in model.inputs})
        ids = np.random.default_rng(0).integers(1000, 20_000, (rows, tokens))
        inputs = [ids, np.ones_like(ids)]
        _print(_profile(core, model, inputs, settings, given.rounds), peak, rows, tokens)


def _shape(text: str) -> tuple[int, int]:
    """Rows and tokens of ``16x128``."""
    rows, tokens = map(int, text.split("x"))
    return rows, tokens


def _product(arithmetic: Arithmetic) -> ov.Model:
    """One product of two square matrices."""
    left = ops.parameter([PEAK, PEAK], np.float32)
    weights = np.random.default_rng(0).integers(-127, 128, (PEAK, PEAK))
    if arithmetic != "int8":
        right = ops.constant(weights.astype(np.float32) / 127)
        return ov.Model([ops.matmul(left, right, False, True)], [left])
    bounds = [ops.constant(np.float32(end)) for end in 2 * (-4, 4 * 127 / 128)]
    narrow = ops.fake_quantize(left, *bounds, 256)
    small = ops.convert(ops.constant(weights.astype(np.int8)), "f32")
    right = ops.multiply(small, ops.constant(np.full((PEAK, 1), 1 / 127, dtype=np.float32)))
    return ov.Model([ops.matmul(narrow, right, False, True)], [left])


def _profile(
    core: ov.Core, model: ov.Model, inputs: list[Any], settings: dict[str, Any], rounds: int
) -> dict[str, Kind]:
    """The kinds of operators."""
    compiled = core.compile_model(model, "CPU", settings)
    work = {node.friendly_name: _multiplications(node) for node in _runtime(compiled)}
    request = compiled.create_infer_request()
    # each operator's fastest round: other programs interrupt some operators of every round
    best: dict[str, Any] = {}
    for _ in range(rounds + 1):
        request.infer(inputs)
        for one in request.profiling_info:
            if "EXECUTED" in str(one.status):
                before = best.setdefault(one.node_name, one)
                best[one.node_name] = min(before, one, key=lambda ran: ran.real_time)
    found: dict[str, Kind] = defaultdict(Kind)
    for name, one in best.items():
        kind = found[f"{one.node_type}, {one.exec_type}"]
        kind.count += 1
        kind.milliseconds += one.real_time.total_seconds() * 1000
        kind.multiplications += work.get(name, 0)
    return found


def _runtime(compiled: Any) -> list[Any]:
    nodes: list[Any] = compiled.get_runtime_model().get_ordered_ops()
    return nodes


def _multiplications(node: Any) -> int:
    """Of an operator that multiplies matrices; 0 of others."""
    kind = str(node.get_rt_info()["layerType"].astype(str))
    if kind in _PRODUCTS:
        inner = list(node.input(0).get_shape())[-1]
        return prod(node.output(0).get_shape()) * inner
    if kind == "ScaledDotProductAttention":
        # [batch, heads, tokens, width], queries against keys, then weights against values
        query, key = (list(node.input(i).get_shape()) for i in (0, 1))
        return 2 * prod(query) * key[-2]
    return 0


def _print(found: dict[str, Kind], peak: float, rows: int, tokens: int) -> None:
    total = sum(kind.milliseconds for kind in found.values())
    work = sum(kind.multiplications for kind in found.values())
    lines = [
        [
            name,
            str(kind.count),
            f"{kind.milliseconds:.2f}",
            f"{kind.milliseconds / total:.1%}",
            f"{kind.multiplications / kind.milliseconds / peak:.2f}"
            if kind.multiplications
            else "",
        ]
        for name, kind in sorted(found.items(), key=lambda one: -one[1].milliseconds)
        if kind.milliseconds > total / 200
    ]
    lines.append(["all", "", f"{total:.2f}", "", f"{work / total / peak:.2f}"])
    print(f"{rows} x {tokens}\n")
    print(table(["operator", "number", "ms", "share", "of the peak"], lines))
    print()


if __name__ == "__main__":
    main()
