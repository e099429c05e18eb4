"""What each choice of layers left in floating point costs and gains the int8 graph.

    python -m benchmarks.int8_settings --judged scifact --documents 1000

Quantises the start weights of the default bundle by each setting, measures parity on 300 passages
of the PEPs as the gate does, nDCG@10 on a judged set if one is given, and the speed on batches of
16 x 128 and 8 x 512 tokens beside the fp32 graph in OpenVINO and in ONNX Runtime. The sides take
turns; the medians count. Graphs are kept in --work, so that an interrupted run goes on.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from rich.table import Table

from export.corpora.reading import Fields
from export.engines import Encode, Inputs, open_engine
from export.graph import write_graph
from export.int8 import FILE, write_int8
from export.parity import compare
from export.passages import read_passages
from export.source import open_source, reference_vectors
from export.tasks.ranking import rank
from export.tokenizer import batches, write_tokenizer
from training.demo import installed_start
from training.evaluation.corpora.catalogue import discover
from training.evaluation.corpora.sets import Judged

LAYER = r".*layer\.\d+"
SETTINGS: Mapping[str, str | None] = {
    "all in int8": None,
    "second projections of layers 0 and 1 float (the default bundle)": (
        r".*layer\.[01]/output/dense/MatMul"
    ),
    "all second projections float": rf"{LAYER}/output/dense/MatMul",
    "layer 0 float": r".*layer\.0/.*MatMul",
    "feed-forward float": rf"{LAYER}/(intermediate|output)/dense/MatMul",
    "attention float": rf"{LAYER}/attention/.*MatMul",
}
SHAPES = ((16, 128), (8, 512))
PASSAGES = 300
MAX_TOKENS = 512
ROUNDS = 9
FP32 = "fp32, OpenVINO"
REFERENCE = "fp32, ONNX Runtime"

Vectors = NDArray[np.float32]


def main() -> None:
    """Quantise, measure, report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, default=Path(".cache/int8_settings"))
    parser.add_argument("--judged", type=Path, help="folder with corpus, queries and qrels")
    parser.add_argument("--documents", type=int, help="of the corpus, at most; default all")
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    source = open_source(installed_start(), max_tokens=MAX_TOKENS)
    passages = read_passages(None, parity=PASSAGES)
    texts = [*passages.calibration, *passages.parity]
    tokenizer = write_tokenizer(source, given.work, texts)

    def inputs(some: list[str], size: int) -> list[Inputs]:
        pad = int(source.tokenizer.pad_token_id)
        return batches(tokenizer, some, max_tokens=MAX_TOKENS, pad_token_id=pad, size=size)

    fp32 = given.work / "model.onnx"
    if not fp32.exists():
        write_graph(source, fp32)
    engines = {
        REFERENCE: open_engine("fp16", fp32, threads=given.threads)[1],
        FP32: open_engine("int8", fp32, threads=given.threads)[1],
    }
    sizes = dict.fromkeys(engines, fp32.stat().st_size)
    for number, (name, keep) in enumerate(track(SETTINGS.items(), description="quantising")):
        folder = given.work / str(number)
        if not (folder / FILE).exists():
            folder.mkdir(exist_ok=True)
            write_int8(fp32, folder, inputs(passages.calibration, 1), keep_float=keep)
        engines[name] = open_engine("int8", folder / FILE, threads=given.threads)[1]
        sizes[name] = sum(file.stat().st_size for file in folder.iterdir())
    reference = reference_vectors(source, passages.parity).numpy()
    measured = inputs(passages.parity, 8)
    rates = _rates(engines, int(source.tokenizer.pad_token_id) + 1)
    judged = None if given.judged is None else _judged(given.judged, given.documents)
    table = Table("setting", "MB", "cosine mean", "lowest", "neighbour", "nDCG@10")
    for shape in SHAPES:
        table.add_column(f"{shape[0]} x {shape[1]}, tokens/s")
        table.add_column("/ ONNX Runtime fp32")
    for name, encode in engines.items():
        vectors = np.concatenate([encode(batch) for batch in measured])
        parity = compare(vectors, reference)
        ndcg = "" if judged is None else f"{_ndcg(encode, inputs, judged, name):.4f}"
        row = [
            name,
            f"{sizes[name] / 1e6:.0f}",
            *(f"{value:.4f}" for value in parity.values()),
            ndcg,
        ]
        for shape in SHAPES:
            rate, base = rates[name, shape], rates[REFERENCE, shape]
            row += [f"{np.median(rate):.0f}", f"{np.median(np.divide(rate, base)):.2f}"]
        table.add_row(*row)
    Console(highlight=False).print(table)


def _judged(path: Path, limit: int | None) -> Judged:
    found = discover([path], Fields(limit=limit))[0].load()
    if not isinstance(found, Judged):
        raise SystemExit(f"--judged {path}: no corpus, queries and qrels in it")
    return found


def _rates(
    engines: Mapping[str, Encode], word: int
) -> dict[tuple[str, tuple[int, int]], list[float]]:
    """Tokens a second of each side at each shape, a figure a round."""
    found: dict[tuple[str, tuple[int, int]], list[float]] = {}
    for turn in track(range(ROUNDS + 1), description="timing"):
        for rows, tokens in SHAPES:
            ids = np.random.default_rng(turn).integers(word, 20_000, (rows, tokens))
            batch = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
            for name, encode in engines.items():
                began = time.perf_counter()
                encode(batch)
                # the first turn warms up
                if turn:
                    rate = rows * tokens / (time.perf_counter() - began)
                    found.setdefault((name, (rows, tokens)), []).append(rate)
    return found


def _ndcg(
    encode: Encode, inputs: Callable[[list[str], int], list[Inputs]], judged: Judged, name: str
) -> float:
    """Of texts cut at the window, so that pooling of windows plays no part."""

    def vectors(texts: Sequence[str]) -> Vectors:
        order = sorted(range(len(texts)), key=lambda number: len(texts[number]))
        made = inputs([texts[number] for number in order], 4)
        rows = np.concatenate([encode(batch) for batch in track(made, description=name)])
        sorted_back = np.empty_like(rows)
        sorted_back[order] = rows
        return sorted_back

    scores = vectors(judged.queries) @ vectors(judged.documents).T
    return float(rank(scores, judged.relevant).ndcg.mean())


if __name__ == "__main__":
    main()
