"""Training speed and memory: this trainer and that of sentence-transformers.

    python -m benchmarks.learning.train_speed --data examples/peps/documents.jsonl.gz

Both sides train the same start weights on the same pairs of texts (DocSplit's halves, drawn once),
cut at the same length, in batches of the same size, in fp32 with AdamW and the checkpoint's
dropout, InfoNCE at the same temperature and no masked LM. sentence-transformers gets the texts and
MultipleNegativesRankingLoss; this trainer gets its token cache. A third run adds the masked LM.

Each side trains in its own process and waits before every batch for its turn. The sides thus
alternate step by step, and other load on the machine affects all equally. The time of a step
includes the preparation of its batch: here drawing views from the cache, there tokenising in the
collator. The command reports medians of documents per second over the steps after ``--skip``, the
median of the ratios of single steps, and the largest resident memory. On both sides the clock
excludes work that a run does only once (opening weights, segmenting and tokenising the corpus).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

from rich.progress import track

from benchmarks.rig import documents

SIDES = ("docsplit", "sentence-transformers", "docsplit+mlm")


@dataclass
class Case:
    """The settings of both sides."""

    data: str
    start: str
    work: str
    batch: int
    tokens: int
    steps: int
    skip: int
    threads: int
    length_group: int
    precision: str


class StepGate:
    """Connects a side with the driver, which releases each step."""

    def __init__(self, line: IO[str]) -> None:
        self._line = line
        self._began: float | None = None

    def wrap(self, prepare: Callable[..., Any]) -> Callable[..., Any]:
        """Make ``prepare``, which makes a batch, wait for the side's turn.

        The call after a step ends the step. The process exits here after the last step.
        """

        def waiting(*arguments: Any, **named: Any) -> Any:
            _finish_work()
            took = None if self._began is None else time.perf_counter() - self._began
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            print(json.dumps({"seconds": took, "peak_mib": peak}), file=self._line, flush=True)
            if sys.stdin.readline().strip() != "go":
                os._exit(0)
            self._began = time.perf_counter()
            return prepare(*arguments, **named)

        return waiting


def _finish_work() -> None:
    """Wait for an accelerator, which computes while the process goes on."""
    import torch

    if torch.accelerator.is_available():
        torch.accelerator.synchronize()


def ours(case: Case, turns: StepGate, *, mlm: bool) -> None:
    """Train with this trainer."""
    import torch

    from training.trainer.loop import TrainingRun

    torch.set_num_threads(case.threads)
    with tempfile.TemporaryDirectory(dir=case.work) as output:
        run = TrainingRun(_settings(case, output, mlm=mlm))
        run.preparation.batch = turns.wrap(run.preparation.batch)  # type: ignore[method-assign]
        run.run()


def _settings(case: Case, output: str, *, mlm: bool) -> Any:
    from training.settings import Settings

    return Settings.model_validate(
        {
            "data": {"path": case.data, "cache": f"{case.work}/cache", "held_out": 0.0},
            "backbone": {
                "path": case.start,
                "max_tokens": case.tokens,
                "attention_dropout": None,
            },
            "objective": {"mlm_weight": 0.1 if mlm else 0.0},
            "optimisation": {
                "batch_size": case.batch,
                "max_steps": 10**6,
                "length_group": case.length_group,
                "precision": case.precision,
            },
            "run": {
                "output": output,
                "tensorboard": False,
                "workers": 0,
                "checkpoint_every": 10**9,
                "evaluate_every": 10**9,
            },
        }
    )


def theirs(case: Case, turns: StepGate) -> None:
    """Train with ``SentenceTransformerTrainer``."""
    import torch
    from datasets import Dataset
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.losses import MultipleNegativesRankingLoss

    torch.set_num_threads(case.threads)
    pairs = json.loads(Path(case.work, "pairs.json").read_text(encoding="utf-8"))
    model = SentenceTransformer(case.start)
    model.max_seq_length = case.tokens
    with tempfile.TemporaryDirectory(dir=case.work) as output:
        trainer = SentenceTransformerTrainer(
            model=model,
            args=SentenceTransformerTrainingArguments(
                output_dir=output,
                per_device_train_batch_size=case.batch,
                max_steps=10**6,
                learning_rate=5e-5,
                bf16=case.precision == "bf16",
                # bf16 on a processor must be asked for
                use_cpu=not torch.cuda.is_available(),
                save_strategy="no",
                report_to=[],
                disable_tqdm=True,
                dataloader_drop_last=True,
            ),
            train_dataset=Dataset.from_list(pairs),
            # In sentence-transformers the scale is the inverse of the temperature.
            loss=MultipleNegativesRankingLoss(model, scale=20.0),
        )
        collator = trainer.data_collator
        waiting = turns.wrap(partial(type(collator).__call__, collator))
        # the trainer reads attributes of the collator, which a plain function lacks
        collator.__class__ = type(
            "Waiting", (type(collator),), {"__call__": lambda _, *a, **k: waiting(*a, **k)}
        )
        trainer.train()


def write_pairs(case: Case) -> None:
    """Build the token cache, and draw DocSplit's halves as texts for the other side."""
    from sentencex import segment
    from transformers import AutoTokenizer

    from training.documents import open_cache

    settings = _settings(case, f"{case.work}/none", mlm=False).data
    open_cache(settings, AutoTokenizer.from_pretrained(case.start))
    draw = random.Random(0)
    pairs = []
    for text in documents.read(Path(case.data), sys.maxsize):
        sentences = [sentence.strip() for sentence in segment("en", text)]
        halves: tuple[list[str], list[str]] = ([], [])
        for sentence in sentences:
            draw.choice(halves).append(sentence)
        if len(sentences) >= settings.min_sentences and all(halves):
            pairs.append({"anchor": " ".join(halves[0]), "positive": " ".join(halves[1])})
    Path(case.work, "pairs.json").write_text(json.dumps(pairs), encoding="utf-8")


def run_side(side: str, case: Case) -> None:
    """Run one side in this process until the driver ends it."""
    # the output of the trainers must not reach the driver
    line = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    turns = StepGate(line)
    if side == "sentence-transformers":
        theirs(case, turns)
    else:
        ours(case, turns, mlm=side.endswith("mlm"))


def main() -> None:
    """Alternate the sides and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True)
    parser.add_argument("--start", help="start weights; default all-MiniLM-L6-v2 as installed")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--skip", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--length-group", type=int, default=16)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--work", help=argparse.SUPPRESS)
    given = parser.parse_args()
    start = given.start
    if start is None:
        from benchmarks.rig.start_bundle import installed_start

        start = installed_start()
    shared = ("data", "batch", "tokens", "steps", "skip", "threads", "length_group", "precision")
    values = {name: getattr(given, name) for name in shared}
    if given.side:
        run_side(given.side, Case(start=start, work=given.work, **values))
        return
    with tempfile.TemporaryDirectory() as work:
        case = Case(start=start, work=work, **values)
        write_pairs(case)
        running = {side: _start(side, work) for side in SIDES}
        try:
            seconds, peaks = _alternate(case, running)
        finally:
            for process in running.values():
                process.kill()
                process.wait()
    report(case, seconds, peaks, given.json)


def _start(side: str, work: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "benchmarks.learning.train_speed", *sys.argv[1:]]
    return subprocess.Popen(
        [*command, "--side", side, "--work", work],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=Path(work, f"{side}.log").open("w"),
        text=True,
    )


def _alternate(
    case: Case, running: dict[str, subprocess.Popen[str]]
) -> tuple[dict[str, list[float]], dict[str, float]]:
    seconds: dict[str, list[float]] = {side: [] for side in running}
    peaks = {side: _answer(side, case, process)["peak_mib"] for side, process in running.items()}
    for number in track(range(case.skip + case.steps), "steps"):
        for side, process in running.items():
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
            figures = _answer(side, case, process)
            peaks[side] = figures["peak_mib"]
            if number >= case.skip:
                seconds[side].append(figures["seconds"])
    return seconds, peaks


def _answer(side: str, case: Case, process: subprocess.Popen[str]) -> dict[str, float]:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        sys.exit(f"{side}: {Path(case.work, f'{side}.log').read_text()[-2000:]}")
    figures: dict[str, float] = json.loads(line)
    return figures


def report(
    case: Case, seconds: dict[str, list[float]], peaks: dict[str, float], path: Path | None
) -> None:
    """Print medians, ratios to sentence-transformers, and the cost of the masked LM."""
    ours, base, mlm = (seconds[side] for side in SIDES)
    print(f"{platform.processor() or platform.machine()}, {json.dumps(asdict(case))}")
    print("| trainer | documents/s | ratio | peak MiB | ratio |")
    print("|---|---|---|---|---|")
    for side, taken in seconds.items():
        rate = case.batch / statistics.median(taken)
        faster = statistics.median(b / t for b, t in zip(base, taken, strict=True))
        print(
            f"| {side} | {rate:.2f} | {faster:.2f} | {peaks[side]:.0f} "
            f"| {peaks[side] / peaks[SIDES[1]]:.2f} |"
        )
    extra = statistics.median(m / o for m, o in zip(mlm, ours, strict=True)) - 1
    print(f"masked LM adds {extra:.1%} to a step")
    if path is not None:
        content = {"case": asdict(case), "seconds": seconds, "peak_mib": peaks, "mlm_extra": extra}
        path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
