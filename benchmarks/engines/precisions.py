"""Tokens/s of the precisions of bundles and of ONNX Runtime in fp32.

    python -m benchmarks.engines.precisions docsplit/models/docsplit-minilm-l6-v3

Every side is an engine that the service's settings would open. The batches have 16 x 128 and
8 x 512 tokens without padding. The sides take turns, and ratios are taken within a round. A side
with two streams computes two batches at once, each on one of two threads, like the service. Further
bundles with the same vocabulary take turns with the first.
"""

from __future__ import annotations

import argparse
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.progress import track
from tokenizers import Tokenizer

from benchmarks.rig.report import table
from docsplit.bundles.format import Bundle, load
from docsplit.bundles.manifest import TOKENIZER
from docsplit.engines.build import build
from docsplit.engines.choice import ArithmeticWish, EngineWish, Processor, choose, detect
from docsplit.engines.interface import Engine

SIDES: tuple[tuple[EngineWish, ArithmeticWish], ...] = (
    ("onnx-cpu", "f32"),
    ("openvino", "f32"),
    ("openvino", "bf16"),
    ("openvino", "int8"),
)
SHAPES = ((16, 128), (8, 512))


def main() -> None:
    """Measure, and print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("bundles", type=Path, nargs="+")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15)
    given = parser.parse_args()
    opened = [load(path) for path in given.bundles]
    processor = detect()
    print(f"{processor.summary}; {given.threads} threads\n")
    sides: dict[str, Engine] = {}
    for one in opened:
        prefix = f"{one.manifest.name}, " if len(opened) > 1 else ""
        engines = _engines(one, processor, given.threads)
        sides |= {f"{prefix}{name}": engine for name, engine in engines.items()}
    reference = next(iter(sides))
    words = Tokenizer.from_file(str(opened[0].path(TOKENIZER))).get_vocab_size()
    heads = ["engine"]
    columns: list[dict[str, str]] = []
    for shape in SHAPES:
        rates = _rates(sides, shape, words, given.rounds)
        ratios = {name: np.divide(rates[name], rates[reference]) for name in sides}
        columns.append({name: f"{statistics.median(rates[name]):,.0f}" for name in sides})
        columns.append({name: f"{np.median(ratios[name]):.2f}" for name in sides})
        columns.append({name: f"{ratios[name].min():.2f}" for name in sides})
        heads += [f"{shape[0]} x {shape[1]}, tokens/s", f"/ {reference}", "lowest"]
    print(table(heads, [[name, *(column[name] for column in columns)] for name in sides]))


def _engines(opened: Bundle, processor: Processor, threads: int) -> dict[str, Engine]:
    """The engines of one bundle that the processor can run, by name."""
    found: dict[str, Engine] = {}
    for engine, arithmetic in SIDES:
        if arithmetic == "bf16" and not processor.bf16:
            continue
        choice = choose(engine, arithmetic, processor, set(opened.manifest.precisions))
        for streams in (1, threads):
            made = build(choice, opened, threads, streams)
            plural = "s" if streams > 1 else ""
            found[f"{made.name} {arithmetic}, {streams} stream{plural}"] = made
    return found


def _rates(
    sides: dict[str, Engine], shape: tuple[int, int], words: int, rounds: int
) -> dict[str, list[float]]:
    """Tokens per second of each side, one figure for each round."""
    found: dict[str, list[float]] = {name: [] for name in sides}
    for turn in track(range(rounds + 1), description=f"{shape[0]} x {shape[1]}"):
        ids = np.random.default_rng(turn).integers(words // 10, words, shape)
        names = list(sides)
        for name in names if turn % 2 else names[::-1]:
            rate = _rate(sides[name], ids)
            # the first turn is the warm-up
            if turn:
                found[name].append(rate)
    return found


def _rate(engine: Engine, ids: NDArray[np.int64]) -> float:
    mask = np.ones_like(ids)
    # equal work for one stream and for two
    batches = max(2, engine.streams)
    with ThreadPoolExecutor(engine.streams) as pool:
        began = time.perf_counter()
        list(pool.map(lambda _: engine.run(ids, mask), range(batches)))
        return batches * ids.size / (time.perf_counter() - began)


if __name__ == "__main__":
    main()
