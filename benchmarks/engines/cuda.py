"""The bundle's fp16 graphs on a GPU: parity, tokens/s, and share of the card's peak performance.

    python -m benchmarks.engines.cuda
    python -m benchmarks.engines.cuda --source BAAI/bge-m3 --bundle bundles/bge-m3 --output cuda.md

The batches have 16 x 128, 64 x 512 and 8 x 4,096 tokens (as far as the window allows), and 64 rows
of mixed lengths. Four sides compute them in turn: the service's CUDA engine with the fp16 graph and
with the packed graph, torch in fp16 with its scaled dot product attention, and encode() of
sentence-transformers in fp16. The figures are medians. The peak is the speed of torch's fp16
product of two square matrices on the same card. The command needs a GPU, onnxruntime-gpu and torch
with CUDA. If one of them is missing, it prints a message and ends with status 2.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.rig import start_bundle

ROOT = Path(__file__).resolve().parents[2]
PASSAGES = 300
PARITY_ROWS = 16
MATRIX = 8192
SHORTEST = 16

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class Case:
    """A batch: rows, tokens of its longest row, and whether the others are shorter."""

    rows: int
    tokens: int
    mixed: bool = False

    @property
    def name(self) -> str:
        """Its name in the table."""
        return f"{self.rows} x {'mixed to ' if self.mixed else ''}{self.tokens:,}"

    def lengths(self) -> list[int]:
        """Tokens of each row, the longest first."""
        shortest = SHORTEST if self.mixed else self.tokens
        return [int(n) for n in np.linspace(self.tokens, shortest, self.rows).round()]


CASES = (Case(16, 128), Case(64, 512), Case(64, 512, mixed=True), Case(8, 4096))


@dataclass
class Side:
    """One side of the comparison. ``run`` computes one batch and returns when it is finished.

    Attributes:
        run: ids, mask (int64 ``[rows, tokens]``) and their texts → float32 ``[rows, dimensions]``.
        mixed: whether rows can be cut to different lengths.
        parity: lowest and mean cosine to the fp32 source.
        seconds: duration of each round, by case.
    """

    run: Callable[[Ids, Ids, Sequence[str]], NDArray[np.float32]]
    mixed: bool = True
    parity: tuple[float, float] = (0.0, 0.0)
    seconds: dict[Case, list[float]] = field(default_factory=dict)


def why_not() -> str | None:
    """Why this machine cannot measure; None if it can."""
    import onnxruntime
    import torch

    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        return "onnxruntime has no CUDA: install onnxruntime-gpu instead of onnxruntime"
    if not torch.cuda.is_available():
        return "torch sees no CUDA device: no GPU, no driver, or a torch without CUDA"
    return None


def table(
    card: str,
    peak: float,
    sides: Mapping[str, Side],
    work: Mapping[Case, float],
) -> str:
    """The report in Markdown.

    Args:
        card: the GPU's name.
        peak: measured floating-point operations per second.
        sides: the sides by name. This project's come first.
        work: operations of each case.
    """
    lines = [
        f"{card}; fp16 product of two {MATRIX:,} x {MATRIX:,} matrices: {peak / 1e12:.0f} TFLOP/s.",
        "",
        "| | lowest cosine | mean | "
        + " | ".join(f"{case.name}: tokens/s | of the peak" for case in work)
        + " |",
        "|---|" + "---|" * (2 + 2 * len(work)),
    ]
    for name, side in sides.items():
        cells = [name, f"{side.parity[0]:.6f}", f"{side.parity[1]:.6f}"]
        for case, operations in work.items():
            if case not in side.seconds:
                cells += ["–", "–"]
                continue
            seconds = statistics.median(side.seconds[case])
            cells += [f"{sum(case.lengths()) / seconds:,.0f}", f"{operations / seconds / peak:.1%}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.engines.cuda",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument(
        "--bundle", type=Path, default=start_bundle.BUNDLE, help="bundle with an fp16 graph"
    )
    made.add_argument(
        "--source", help="the bundle's checkpoint (default: that of the default bundle)"
    )
    made.add_argument("--rounds", type=int, default=15, help="timed rounds (default: 15)")
    made.add_argument("--output", type=Path, help="Markdown file (default: print only)")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and report; returns the exit status."""
    given = parser().parse_args(arguments)
    if reason := why_not():
        print(f"benchmarks.engines.cuda: nothing was measured: {reason}", file=sys.stderr)
        return 2
    report = measure(start_bundle.provide(given.bundle), given.source, given.rounds)
    print(report)
    if given.output is not None:
        given.output.write_text(report + "\n", encoding="utf-8")
    return 0


def measure(folder: Path, checkpoint: str | None, rounds: int) -> str:
    """Measure all sides on all cases that the bundle's window allows; returns the report."""
    import torch
    from tokenizers import Tokenizer

    from benchmarks.rig.start_bundle import installed_start
    from docsplit.bundles.format import load
    from export.source import open_source, reference_vectors
    from export.texts import batches, read_passages

    bundle = load(folder)
    window = bundle.manifest.max_tokens
    source = open_source(checkpoint or installed_start(), max_tokens=window)
    tokenizer = Tokenizer.from_file(str(bundle.path("tokenizer.json")))
    passages = read_passages(None, parity=PASSAGES)
    cases = [case for case in CASES if case.tokens <= window]
    pad = bundle.manifest.pad_token_id
    inputs = batches(
        tokenizer, passages.parity, max_tokens=window, pad_token_id=pad, size=PARITY_ROWS
    )
    with tempfile.TemporaryDirectory() as scratch:
        sides = _sides(bundle, source, Path(scratch))
        reference = reference_vectors(source, passages.parity).numpy()
        for side in sides.values():
            cosines = _cosines(side, inputs, passages.parity, reference)
            side.parity = (float(cosines.min()), float(cosines.mean()))
        text = " ".join(passages.calibration)
        made = {case: _batch(case, tokenizer, text, pad) for case in cases}
        for turn in range(rounds + 1):
            for case, (ids, mask, texts) in made.items():
                for side in sides.values():
                    if case.mixed and not side.mixed:
                        continue
                    began = time.perf_counter()
                    side.run(ids, mask, texts)
                    # the first turn is the warm-up
                    if turn:
                        passed = time.perf_counter() - began
                        side.seconds.setdefault(case, []).append(passed)
        work = {case: _operations(source, case) for case in cases}
        return table(torch.cuda.get_device_name(), _peak(), sides, work)


def _sides(bundle: Any, source: Any, scratch: Path) -> dict[str, Side]:
    import torch
    from sentence_transformers import SentenceTransformer

    from docsplit.engines.build import buckets
    from docsplit.engines.onnx import OnnxCudaEngine, open_cuda
    from export.fp16 import PACKED_FILE, write_packed
    from export.graph import SentenceEncoder

    if "packed" in bundle.manifest.precisions:
        packed = bundle.graph("packed")
    else:
        write_packed(bundle.graph("fp16"), scratch)
        packed = scratch / PACKED_FILE
    engines = {
        "docsplit, fp16": OnnxCudaEngine(open_cuda(bundle.graph("fp16")), buckets(bundle)),
        "docsplit, packed": OnnxCudaEngine(open_cuda(packed), buckets(bundle)),
    }
    peer = SentenceTransformer(
        str(source.model[0].auto_model.config.name_or_path),
        device="cuda",
        model_kwargs={"attn_implementation": "sdpa", "dtype": torch.float16},
    ).eval()
    peer.max_seq_length = source.max_tokens
    encoder: Any = peer[0].auto_model
    # a copy, because the source stays on the device that computes the reference
    tail = copy.deepcopy(SentenceEncoder(source).tail).to("cuda")

    def by_torch(ids: Ids, mask: Ids, texts: Sequence[str]) -> NDArray[np.float32]:
        with torch.inference_mode():
            on_card = [torch.from_numpy(value).to("cuda") for value in (ids, mask)]
            hidden = encoder(input_ids=on_card[0], attention_mask=on_card[1]).last_hidden_state
            vectors: NDArray[np.float32] = tail(hidden, on_card[1]).cpu().numpy()
        return vectors

    def by_encode(ids: Ids, mask: Ids, texts: Sequence[str]) -> NDArray[np.float32]:
        peer.max_seq_length = ids.shape[1]
        vectors = peer.encode(
            list(texts), batch_size=len(texts), normalize_embeddings=True, show_progress_bar=False
        )
        return np.asarray(vectors, dtype=np.float32)

    def ours(engine: OnnxCudaEngine) -> Side:
        return Side(lambda ids, mask, texts: engine.run(ids, mask))

    return {name: ours(engine) for name, engine in engines.items()} | {
        "torch fp16, SDPA": Side(by_torch),
        "sentence-transformers fp16, encode()": Side(by_encode, mixed=False),
    }


def _batch(case: Case, tokenizer: Any, text: str, pad: int) -> tuple[Ids, Ids, list[str]]:
    """Real text. Each row begins at a different place and is long enough for its length."""
    words = text.split()
    texts, ids = [], np.full((case.rows, case.tokens), pad, dtype=np.int64)
    mask = np.zeros_like(ids)
    for row, length in enumerate(case.lengths()):
        start = row * 97 % max(1, len(words) - 2 * case.tokens)
        texts.append(" ".join(words[start : start + 2 * case.tokens]))
        tokenizer.enable_truncation(length)
        found = tokenizer.encode(texts[-1]).ids
        if len(found) != length:
            raise SystemExit(f"the passages give no row of {length} tokens")
        ids[row, :length], mask[row, :length] = found, 1
    tokenizer.no_truncation()
    return ids, mask, texts


def _cosines(
    side: Side,
    inputs: Sequence[Mapping[str, Ids]],
    texts: Sequence[str],
    reference: NDArray[np.float32],
) -> NDArray[np.float64]:
    vectors = []
    for number, batch in enumerate(inputs):
        some = texts[number * PARITY_ROWS : (number + 1) * PARITY_ROWS]
        vectors.append(side.run(batch["input_ids"], batch["attention_mask"], some))
    cosines: NDArray[np.float64] = (np.concatenate(vectors).astype(float) * reference).sum(axis=1)
    return cosines


def _operations(source: Any, case: Case) -> float:
    """Floating-point operations of the encoder's products on the rows without padding."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    total = 0.0
    for length in set(lengths := case.lengths()):
        ids = torch.ones((1, length), dtype=torch.long)
        with FlopCounterMode(display=False) as counter, torch.inference_mode():
            source.encoder(input_ids=ids, attention_mask=torch.ones_like(ids))
        total += counter.get_total_flops() * lengths.count(length)
    return total


def _peak() -> float:
    """Operations per second of torch's fp16 matrix product on this card."""
    import torch

    one = torch.randn((MATRIX, MATRIX), device="cuda", dtype=torch.float16)
    seconds = []
    for turn in range(20):
        torch.cuda.synchronize()
        began = time.perf_counter()
        torch.matmul(one, one)
        torch.cuda.synchronize()
        if turn >= 5:
            seconds.append(time.perf_counter() - began)
    return 2 * MATRIX**3 / statistics.median(seconds)


if __name__ == "__main__":
    sys.exit(main())
