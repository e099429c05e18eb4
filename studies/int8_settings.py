"""Which layers of the int8 graph should stay in floating point? Studied on 2026-11-22.

    python -m studies.int8_settings --judged scifact --documents 1000

Quantises all-MiniLM-L6-v2 with each setting. Measures parity on 300 passages of the PEPs and, with
--judged, nDCG@10, both like the gate. Then measures the speed on batches of 16 x 128 and 8 x 512
tokens, compared with the fp32 graph in OpenVINO and in ONNX Runtime. The sides take turns; the
table has medians. --work keeps the graphs, so that an interrupted run continues.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from rich.progress import Progress, track

from benchmarks.engines.opening import open_encode
from benchmarks.rig.markdown import table
from docsplit.corpora.fields import Fields
from docsplit.engines.choice import detect
from docsplit.windowing.documents import Window, document_vectors, read
from docsplit.windowing.tokens import DocumentTokenizer
from export.checkpoint.source import open_source, reference_vectors
from export.checkpoint.tokenizer import batches, write_tokenizer
from export.checks.engines import Encode, Inputs, named
from export.checks.parity import compare
from export.graphs.graph import write_graph
from export.graphs.int8 import FILE, quantise, write_int8
from export.passages import PEPS, read_passages
from export.tasks.held_out import HeldOut, read_tasks
from export.tasks.loss import figure
from export.tasks.task import Task
from training.demo import installed_start

LAYER = r".*layer\.\d+"
SETTINGS: Mapping[str, str | None] = {
    "all in int8": None,
    "second projections of layers 0 and 1 float (the shipped bundles)": (
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
REFERENCE = "fp32, ONNX Runtime"


def main() -> None:
    """Quantise, measure and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, default=Path(".cache/int8_settings"))
    parser.add_argument("--judged", type=Path, help="folder with corpus, queries and qrels")
    parser.add_argument(
        "--documents", type=int, help="maximum documents of the corpus; default all"
    )
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    source = open_source(installed_start(), max_tokens=MAX_TOKENS)
    passages = read_passages(None, parity=PASSAGES)
    texts = [*passages.calibration, *passages.parity]
    tokenizer = write_tokenizer(source, given.work, texts)

    pad = int(source.tokenizer.pad_token_id)

    def inputs(some: list[str], size: int) -> list[Inputs]:
        return batches(tokenizer, some, max_tokens=MAX_TOKENS, pad_token_id=pad, size=size)

    fp32 = given.work / "model.onnx"
    if not fp32.exists():
        write_graph(source, fp32)
    engines = {
        REFERENCE: open_encode("onnx-cpu", fp32, "f32", given.threads),
        "fp32, OpenVINO": open_encode("openvino", fp32, "f32", given.threads),
    }
    if detect().bf16:
        engines["bf16, OpenVINO"] = open_encode("openvino", fp32, "bf16", given.threads)
    sizes = dict.fromkeys(engines, fp32.stat().st_size)
    for number, (name, keep) in enumerate(track(SETTINGS.items(), description="quantising")):
        folder = given.work / str(number)
        if not (folder / FILE).exists():
            folder.mkdir(exist_ok=True)
            calibration = inputs(passages.calibration, 1)
            write_int8(quantise(fp32, calibration, keep_float=keep), folder)
        engines[name] = open_encode("openvino", folder / FILE, "int8", given.threads)
        sizes[name] = sum(file.stat().st_size for file in folder.iterdir())
    reference = reference_vectors(source, passages.parity).numpy()
    measured = inputs(passages.parity, 8)
    rates = _rates(engines, pad + 1)
    task = _task(given.judged, given.documents, passages.calibration)
    windows = read(DocumentTokenizer(tokenizer, MAX_TOKENS), task.texts if task else [])
    heads = ["setting", "MB", "cosine mean", "lowest", "neighbour", "nDCG@10"]
    for shape in SHAPES:
        heads += [f"{shape[0]} x {shape[1]}, tokens/s", "/ ONNX Runtime fp32"]
    rows = []
    for name, encode in engines.items():
        vectors = np.concatenate([encode(batch) for batch in measured])
        parity = compare(vectors, reference)
        row = [name, f"{sizes[name] / 1e6:.0f}", *(f"{value:.4f}" for value in parity.values())]
        row.append("" if task is None else f"{_ndcg(task, windows, encode, pad, name):.4f}")
        for shape in SHAPES:
            rate, base = rates[name, shape], rates[REFERENCE, shape]
            row += [f"{np.median(rate):.0f}", f"{np.median(np.divide(rate, base)):.2f}"]
        rows.append(row)
    print(table(heads, rows))


def _task(folder: Path | None, documents: int | None, calibration: list[str]) -> Task | None:
    if folder is None:
        return None
    return read_tasks(HeldOut([folder], fields=Fields(limit=documents)), PEPS, calibration)[0]


def _rates(
    engines: Mapping[str, Encode], word: int
) -> dict[tuple[str, tuple[int, int]], list[float]]:
    """Tokens per second of each side at each shape, one figure for each round."""
    found: dict[tuple[str, tuple[int, int]], list[float]] = {}
    for turn in track(range(ROUNDS + 1), description="timing"):
        for rows, tokens in SHAPES:
            ids = np.random.default_rng(turn).integers(word, 20_000, (rows, tokens))
            batch = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
            for name, encode in engines.items():
                began = time.perf_counter()
                encode(batch)
                # the first turn is the warm-up
                if turn:
                    rate = rows * tokens / (time.perf_counter() - began)
                    found.setdefault((name, (rows, tokens)), []).append(rate)
    return found


def _ndcg(
    task: Task, windows: list[list[Window]], encode: Encode, pad_token_id: int, name: str
) -> float:
    with Progress(transient=True) as progress:
        bar = progress.add_task(name, total=1.0)
        vectors = document_vectors(
            windows,
            lambda ids, mask: encode(named(ids, mask)),
            pad_token_id=pad_token_id,
            advance=lambda share: progress.update(bar, completed=share),
        )
    return figure(task, vectors, name)


if __name__ == "__main__":
    main()
