"""Training speed and memory: this trainer against sentence-transformers' own.

    python -m benchmarks.train_speed --data examples/peps/documents.jsonl.gz

Both sides train the same start weights on the same pairs of texts (DocSplit's halves, drawn once),
cut at the same length, in batches of the same size, in fp32 with AdamW and the checkpoint's
dropout, InfoNCE at the same temperature and no masked LM. sentence-transformers gets the texts and
MultipleNegativesRankingLoss; this trainer gets its token cache. A third run adds the masked LM.

Each side's round runs in a process of its own, and rounds alternate, so that what else the machine
does falls on all alike. Reported are the median over the rounds of documents per second, counted
after the first ``--skip`` steps, and the largest resident memory. What a run does once (opening
weights, segmenting and tokenising the corpus into the cache) is outside of the clock on both
sides; sentence-transformers tokenises in its collator at every step, which is inside.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

SIDES = ("docsplit", "sentence-transformers", "docsplit+mlm")


@dataclass
class Case:
    """What both sides share."""

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


def ours(case: Case, *, mlm: bool) -> dict[str, float]:
    """Documents per second of this trainer."""
    import torch

    from training.trainer.curve import read_lines
    from training.trainer.loop import TrainingRun

    torch.set_num_threads(case.threads)
    with tempfile.TemporaryDirectory(dir=case.work) as output:
        run = TrainingRun(_settings(case, output, mlm=mlm))
        run.run(stop_after=case.steps)
        steps = read_lines(Path(output) / "steps.jsonl")[case.skip :]
    device = run.processes.device
    seconds = sum(s["seconds"] for s in steps)
    return _figures(sum(s["documents"] for s in steps) / seconds, device)


def _settings(case: Case, output: str, *, mlm: bool) -> Any:
    from training.settings import Settings

    return Settings.model_validate(
        {
            "data": {"path": case.data, "cache": f"{case.work}/cache", "held_out": 0.0},
            "backbone": {"path": case.start, "max_tokens": case.tokens},
            "objective": {"mlm_weight": 0.1 if mlm else 0.0},
            "optimisation": {
                "batch_size": case.batch,
                # One more than is taken, so that no model is written inside the measurement.
                "max_steps": case.steps + 1,
                "length_group": case.length_group,
                "precision": case.precision,
            },
            "run": {
                "output": output,
                "tensorboard": False,
                "checkpoint_every": 10**9,
                "evaluate_every": 10**9,
            },
        }
    )


def theirs(case: Case) -> dict[str, float]:
    """Documents per second of ``SentenceTransformerTrainer``."""
    import torch
    from datasets import Dataset
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.losses import MultipleNegativesRankingLoss
    from transformers import TrainerCallback

    torch.set_num_threads(case.threads)
    pairs = json.loads(Path(case.work, "pairs.json").read_text(encoding="utf-8"))
    model = SentenceTransformer(case.start)
    model.max_seq_length = case.tokens

    class Clock(TrainerCallback):  # type: ignore[misc]
        began = ended = 0.0

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step == case.skip:
                self.began = time.perf_counter()
            if state.global_step == case.steps:
                self.ended = time.perf_counter()

    clock = Clock()
    with tempfile.TemporaryDirectory(dir=case.work) as output:
        trainer = SentenceTransformerTrainer(
            model=model,
            args=SentenceTransformerTrainingArguments(
                output_dir=output,
                per_device_train_batch_size=case.batch,
                max_steps=case.steps,
                learning_rate=5e-5,
                bf16=case.precision == "bf16",
                save_strategy="no",
                report_to=[],
                disable_tqdm=True,
                dataloader_drop_last=True,
            ),
            train_dataset=Dataset.from_list(pairs),
            # Their scale is the inverse of the temperature.
            loss=MultipleNegativesRankingLoss(model, scale=20.0),
            callbacks=[clock],
        )
        trainer.train()
    documents = (case.steps - case.skip) * case.batch
    return _figures(documents / (clock.ended - clock.began), trainer.args.device)


def _figures(rate: float, device: Any) -> dict[str, float]:
    import torch

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if device.type == "cuda":
        peak = torch.cuda.max_memory_allocated(device) / 2**20
    return {"documents_per_second": rate, "peak_mib": peak}


def write_pairs(case: Case) -> None:
    """Build the token cache, and draw the halves as texts for the other side."""
    import numpy as np
    from transformers import AutoTokenizer

    from training.data.build import open_cache
    from training.data.sentences import split_sentences
    from training.data.sources import read_documents
    from training.settings import ObjectiveSettings
    from training.views.docsplit import docsplit
    from training.views.types import ViewContext

    settings = _settings(case, f"{case.work}/none", mlm=False).data
    open_cache(settings, AutoTokenizer.from_pretrained(case.start))
    context = ViewContext(ObjectiveSettings(), 1, -1, np.ones(1, dtype=np.bool_))
    pairs = []
    for number, document in enumerate(read_documents(settings)):
        sentences = split_sentences(document.text)
        if len(sentences) < settings.min_sentences:
            continue
        # Views are drawn on numbers that stand for the sentences.
        places = [np.array([i]) for i in range(len(sentences))]
        halves = docsplit(places, np.random.default_rng(number), context)
        first, second = (" ".join(sentences[int(i[0])] for i in half or []) for half in halves)
        pairs.append({"anchor": first, "positive": second})
    Path(case.work, "pairs.json").write_text(json.dumps(pairs), encoding="utf-8")


def run_side(side: str, case: Case) -> dict[str, float]:
    """One side's round, in this process."""
    if side == "sentence-transformers":
        return theirs(case)
    return ours(case, mlm=side.endswith("mlm"))


def main() -> None:
    """Alternate the sides and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True)
    parser.add_argument("--start", help="start weights; default all-MiniLM-L6-v2 as installed")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--skip", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--length-group", type=int, default=16)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--work", help=argparse.SUPPRESS)
    given = parser.parse_args()
    start = given.start
    if start is None:
        from training.demo import installed_start

        start = installed_start()
    shared = ("data", "batch", "tokens", "steps", "skip", "threads", "length_group", "precision")
    values = {name: getattr(given, name) for name in shared}
    if given.side:
        figures = run_side(given.side, Case(start=start, work=given.work, **values))
        print(json.dumps(figures))
        return
    with tempfile.TemporaryDirectory() as work:
        case = Case(start=start, work=work, **values)
        write_pairs(case)
        found: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
        for number in range(given.rounds):
            for side in SIDES:
                command = [
                    sys.executable,
                    "-m",
                    "benchmarks.train_speed",
                    *sys.argv[1:],
                    "--side",
                    side,
                    "--work",
                    work,
                ]
                done = subprocess.run(command, capture_output=True, text=True)
                if done.returncode:
                    sys.exit(f"{side}: {done.stderr[-2000:]}")
                figures = json.loads(done.stdout.strip().splitlines()[-1])
                found[side].append(figures)
                rate = figures["documents_per_second"]
                print(f"round {number + 1} {side}: {rate:.2f} documents/s", file=sys.stderr)
    report(case, found, given.json)


def report(case: Case, found: dict[str, list[dict[str, float]]], path: Path | None) -> None:
    """Print the medians, and the ratios to sentence-transformers."""
    medians = {
        side: {
            key: statistics.median(f[key] for f in rounds)
            for key in ("documents_per_second", "peak_mib")
        }
        for side, rounds in found.items()
    }
    base = medians["sentence-transformers"]
    print(f"{platform.processor() or platform.machine()}, {json.dumps(asdict(case))}")
    print("| trainer | documents/s | ratio | peak MiB | ratio |")
    print("|---|---|---|---|---|")
    for side, figures in medians.items():
        rate, peak = figures["documents_per_second"], figures["peak_mib"]
        print(
            f"| {side} | {rate:.2f} | {rate / base['documents_per_second']:.2f} "
            f"| {peak:.0f} | {peak / base['peak_mib']:.2f} |"
        )
    if path is not None:
        content = {"case": asdict(case), "rounds": found, "medians": medians}
        path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
