"""Time by length: sliding-window attention, dense attention, and windows with their mean.

    python -m benchmarks.engines.long_context CHECKPOINT --plot docs/images/long-context.svg

The command extends a short BERT checkpoint (see training/encoder.py) to the longest
length. It exports one graph with the window and one with dense attention. It times one text of each
length on the CPU: both graphs in one pass, and the dense graph on a batch of windows of the short
checkpoint's length. All have the same weights and run in turn; the figures are medians. At 4,096
tokens, or the longest length below that, it compares the graph's vector with that of the
checkpoint in torch.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx.numpy_helper import from_array
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.rig.report import svg
from docsplit.engines.choice import Arithmetic, EngineName, detect
from docsplit.engines.interface import Engine
from docsplit.engines.onnx import OnnxCpuEngine
from docsplit.engines.openvino_cpu import OpenVinoEngine
from export.engines import Encode, Inputs, source_engine
from export.graph import INPUTS, write_graph
from export.source import Source, open_source
from training.encoder import open_start
from training.settings import BackboneSettings
from training.trainer.output import save_model

LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
COMPARED = 4096
BLOCKED, DENSE, WINDOWS = "sliding window", "dense", "windows and mean"
CONSOLE = Console(highlight=False)


def open_encode(name: EngineName, graph: Path, arithmetic: Arithmetic, threads: int) -> Encode:
    """One batch at a time on all threads: inputs int64 ``[batch, tokens]`` → float32
    ``[batch, dimensions]``."""
    kind = OpenVinoEngine if name == "openvino" else OnnxCpuEngine
    engine: Engine = kind(graph, arithmetic, threads, 1)
    return lambda inputs: engine.run(inputs["input_ids"], inputs["attention_mask"])


def main() -> None:
    """Export, time, compare and plot."""
    given = _options()
    longest = max(given.lengths)
    with tempfile.TemporaryDirectory() as work:
        source = _extended(given.checkpoint, longest, given.window, Path(work))
        window = int(source.encoder.config.attention_window)
        short = min(window, longest)
        sliding = _graph(source, Path(work, "sliding.onnx"), given, dense=False)
        dense = _graph(source, Path(work, "dense.onnx"), given, dense=True)
        runs: dict[str, Callable[[Inputs], object]] = {
            BLOCKED: sliding,
            DENSE: dense,
            WINDOWS: lambda inputs: dense(_cut(inputs, short)),
        }
        seconds = _interleaved(runs, given.lengths, given.runs, given.dense_most)
        compared = max(n for n in given.lengths if n <= COMPARED)
        difference = _difference(source, sliding, compared)
    engine = f"{given.engine} {given.precision}, {given.threads} threads"
    title = f"{detect().summary}, {engine}, a window of {window}"
    table = Table("tokens", *(f"{name}, s" for name in runs), f"dense / {BLOCKED}", title=title)
    for length in given.lengths:
        found = [seconds[name].get(length) for name in runs]
        ratio = f"{found[1] / found[0]:.2f}" if found[0] and found[1] else ""
        cells = ["" if value is None else f"{value:.3f}" for value in found]
        table.add_row(f"{length:,}", *cells, ratio)
    CONSOLE.print(table)
    CONSOLE.print(f"largest difference from torch at {compared:,} tokens: {difference:.1e}")
    if given.plot:
        _draw(seconds, title, given.plot)


def _extended(checkpoint: str, longest: int, window: int | None, work: Path) -> Source:
    settings = BackboneSettings(
        path=checkpoint, extend_to=longest, attention_window=window, max_tokens=longest
    )
    start = open_start(settings)
    save_model(start.encoder, start.tokenizer, longest, work / "long")
    return open_source(str(work / "long"), trust_remote_code=True)


def _graph(source: Source, path: Path, given: argparse.Namespace, *, dense: bool) -> Encode:
    write_graph(source, path)
    if dense:
        _never_block(path)
    return open_encode(given.engine, path, given.precision, given.threads)


def _never_block(path: Path) -> None:
    """Raise the length up to which the graph's attention is dense."""
    model = onnx.load(path)
    bounds = [
        node
        for node in model.graph.node
        if node.op_type == "Constant" and node.output[0].startswith("most")
    ]
    for node in bounds:
        node.attribute[0].t.CopyFrom(from_array(np.array(2**31)))
    if not bounds:
        raise ValueError(f"{path}: no bound of dense attention")
    onnx.save(model, path)


def _interleaved(
    runs: dict[str, Callable[[Inputs], object]],
    lengths: Sequence[int],
    count: int,
    dense_most: int,
) -> dict[str, dict[int, float]]:
    taken: dict[str, dict[int, float]] = {name: {} for name in runs}
    with Progress(console=CONSOLE) as progress:
        for length in progress.track(lengths, description="lengths"):
            inputs = _inputs(length)
            here = [name for name in runs if name != DENSE or length <= dense_most]
            each: dict[str, list[float]] = {name: [] for name in here}
            # the first run of each shape compiles
            for number in range(count + 1):
                for name in here:
                    began = time.perf_counter()
                    runs[name](inputs)
                    if number:
                        each[name].append(time.perf_counter() - began)
            for name in here:
                taken[name][length] = float(np.median(each[name]))
    return taken


def _inputs(length: int) -> Inputs:
    ids = np.random.default_rng(length).integers(1000, 20_000, (1, length))
    return dict(zip(INPUTS, (ids, np.ones_like(ids)), strict=True))


def _cut(inputs: Inputs, window: int) -> Inputs:
    """Rows of one window each. Lengths are multiples of the window."""
    return {name: values.reshape(-1, min(window, values.size)) for name, values in inputs.items()}


def _difference(source: Source, encode: Encode, length: int) -> float:
    inputs = _inputs(length)
    return float(np.abs(encode(inputs) - source_engine(source)(inputs)).max())


def _draw(seconds: dict[str, dict[int, float]], title: str, path: Path) -> None:
    with svg(path, (7, 4.5)) as figure:
        axes = figure.add_subplot()
        for (name, found), marker in zip(seconds.items(), "osd", strict=True):
            axes.plot(list(found), list(found.values()), marker=marker, label=name)
        lengths = sorted(next(iter(seconds.values())))
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks(lengths, [f"{length:,}" for length in lengths])
        axes.set_xlabel("tokens of the document")
        axes.set_ylabel("seconds")
        axes.set_title(title)
        axes.grid(alpha=0.3)
        axes.legend()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        prog="python -m benchmarks.engines.long_context",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("checkpoint", help="a short BERT or RoBERTa checkpoint")
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS, metavar="N")
    parser.add_argument(
        "--window", type=int, help="tokens that a token sees on either side (default: its own)"
    )
    parser.add_argument("--dense-most", type=int, default=LENGTHS[-1], metavar="N")
    parser.add_argument("--engine", choices=("openvino", "onnx-cpu"), default="openvino")
    parser.add_argument("--precision", choices=("f32", "bf16"), default="f32")
    parser.add_argument("--threads", type=int, default=detect().cores)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--plot", type=Path, metavar="SVG")
    return parser.parse_args()


if __name__ == "__main__":
    main()
