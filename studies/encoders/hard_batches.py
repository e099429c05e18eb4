"""How hard are DocSplit's batches, and what do masked inputs do to its gradient? Of 2026-11-23.

    python -m studies.encoders.hard_batches START --documents wiki.parquet

It trains nothing. For batches drawn at random and from clusters, with clean and with masked inputs,
it reports the contrastive loss, the share of documents whose own half is nearest, the norm of the
gradient of the encoder, and the cosine between the gradients of clean and masked inputs. Medians
over the batches, without dropout.
"""

from __future__ import annotations

import argparse
import tempfile
from statistics import median

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from training.processes import Processes
from training.settings import Settings
from training.trainer.gradients import BatchGradients
from training.trainer.opening import open_run
from training.trainer.order import open_neighbourhood, open_order
from training.trainer.preparation import Preparation

CHUNK_TOKENS = 4096


def settings(given: argparse.Namespace, output: str, size: int, inputs: str) -> Settings:
    """DocSplit without dropout; masked inputs count only in the contrastive loss."""
    return Settings.model_validate(
        {
            "data": {"path": given.documents, "limit": given.limit},
            "backbone": {"path": given.start, "max_tokens": given.max_tokens, "dropout": 0.0},
            "objective": {
                "windows": given.windows,
                "mlm_inputs": inputs,
                "mlm_weight": 1e-9 if inputs == "shared" else 0.0,
                "negatives_below": given.negatives_below,
            },
            "optimisation": {"batch_size": given.batch_size, "cluster_size": size},
            "run": {"output": output},
        }
    )


def measure(given: argparse.Namespace) -> Table:
    """The table."""
    processes = Processes(cpu=True)
    table = Table("documents of a batch", "inputs", "loss", "nearest", "gradient", "to clean")
    with tempfile.TemporaryDirectory() as folder:
        for size in (0, *given.cluster_sizes):
            figures: dict[str, list[tuple[float, float, torch.Tensor]]] = {}
            for inputs in ("separate", "shared"):
                asked = settings(given, f"{folder}/{size}", size, inputs)
                opened = open_run(asked, processes)
                near = open_neighbourhood(asked, opened, processes, CHUNK_TOKENS)
                order = open_order(asked, opened, near)
                prepared = Preparation(
                    opened.cache,
                    opened.tokenizer,
                    asked,
                    rank=0,
                    count=1,
                    chunk_tokens=CHUNK_TOKENS,
                    neighbourhood=near,
                )
                learner = BatchGradients(
                    opened.encoder, opened.head, asked.objective, processes, seed=0, cached=True
                )
                numbers = track(range(given.batches), f"{size}, {inputs}", transient=True)
                for batch in (prepared.batch(number, order[number]) for number in numbers):
                    opened.encoder.zero_grad()
                    loss = learner.accumulate(batch)
                    parameters = opened.encoder.parameters()
                    gradient = [p.grad.flatten() for p in parameters if p.grad is not None]
                    figures.setdefault(inputs, []).append(
                        (loss.contrastive, loss.accuracy, torch.cat(gradient))
                    )
            for inputs in figures:
                pairs = zip(figures[inputs], figures["separate"], strict=True)
                cosines = [float(torch.cosine_similarity(a[2], b[2], dim=0)) for a, b in pairs]
                table.add_row(
                    f"cluster of about {size}" if size else "random",
                    "clean" if inputs == "separate" else "masked",
                    f"{median(one[0] for one in figures[inputs]):.3f}",
                    f"{median(one[1] for one in figures[inputs]):.3f}",
                    f"{median(float(one[2].norm()) for one in figures[inputs]):.2f}",
                    f"{median(cosines):.2f}",
                )
    return table


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m studies.encoders.hard_batches",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("start", help="folder of the start weights")
    add("--documents", type=str, required=True, help="file or folder of documents")
    add("--limit", type=int, default=4000)
    add("--batch-size", type=int, default=32)
    add("--batches", type=int, default=5)
    add("--max-tokens", type=int, default=128)
    add("--windows", type=int, default=1)
    add("--cluster-sizes", type=int, nargs="*", default=[256, 64])
    add("--negatives-below", type=float, default=1.0)
    given = parser.parse_args()
    Console().print(measure(given))


if __name__ == "__main__":
    main()
