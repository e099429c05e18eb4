"""``docsplit-train average``: average the weights of several encoders."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from training.errors import AveragingError
from training.trainer.output import complete, write_record

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from torch import Tensor

DESCRIPTION = """\
Average the weights of encoders that were trained from the same start.

If the start weights are among them, the mean often keeps their abilities and most of what the
training added (Wortsman et al. 2022, "Robust fine-tuning of zero-shot models"):

  docsplit-train average all-MiniLM-L6-v2 runs/first/model --output runs/averaged

A share below 0 subtracts. This example adds to the start weights what the second training added
to the first (Ilharco et al. 2023, "Editing models with task arithmetic"):

  docsplit-train average all-MiniLM-L6-v2 runs/first/model runs/second/model --shares 1 -1 1 \
    --output runs/added
"""


def average(models: Sequence[str], shares: Sequence[float], folder: Path) -> None:
    """Write the weighted mean of encoders as a sentence-transformers folder.

    Wortsman et al. 2022, "Model soups", section 2, and "Robust fine-tuning of zero-shot models",
    eq. 1; with shares below 0 Ilharco et al. 2023, "Editing models with task arithmetic",
    section 2. The result has the tokenizer, pooling and window of the first encoder.

    Args:
        models: folders or hub names, as ``SentenceTransformer`` opens them.
        shares: one for each model. Their sum is above 0.
        folder: the folder of the result. It must not exist.

    Raises:
        AveragingError: a model cannot be opened, two differ in their parameters' names or shapes,
            or the folder exists.
        OutputError: the disk is full or not writable.
    """
    import torch

    from export.source import save_with_code

    if folder.exists():
        raise AveragingError(f"{folder} exists; take another --output or remove it")
    first, *others = map(_opened, models)
    parts = [model.state_dict() for model in (first, *others)]
    for name, part in zip(models[1:], parts[1:], strict=True):
        if _shapes(part) != _shapes(parts[0]):
            raise AveragingError(
                f"{models[0]} and {name} differ in architecture: their parameters do not match"
            )
    total = sum(shares)
    mean = {}
    for key, value in parts[0].items():
        if not value.is_floating_point():
            mean[key] = value
            continue
        summed = torch.zeros_like(value, dtype=torch.float64)
        for part, share in zip(parts, shares, strict=True):
            summed += part[key].double() * (share / total)
        mean[key] = summed.to(value.dtype)
    first.load_state_dict(mean)
    made = [{"model": m, "share": s / total} for m, s in zip(models, shares, strict=True)]
    with complete(folder, replaces=False) as draft:
        save_with_code(first, draft)
        write_record(draft, {"average": made})


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit status.

    Raises:
        AveragingError: see ``average``; also if the numbers of models and shares do not fit.
        OutputError: see ``average``.
    """
    parser = argparse.ArgumentParser(
        prog="docsplit-train average",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("models", nargs="+", help="two or more folders or hub names")
    parser.add_argument(
        "--shares", nargs="+", type=float, help="weight of each model (default: equal)"
    )
    parser.add_argument("--output", required=True, type=Path, help="folder of the result")
    given = parser.parse_args(arguments)
    shares = given.shares or [1.0] * len(given.models)
    if len(given.models) < 2:
        raise AveragingError("one model is not enough: name two or more")
    if len(shares) != len(given.models):
        raise AveragingError(f"--shares: {len(shares)} shares for {len(given.models)} models")
    if not all(map(math.isfinite, shares)):
        raise AveragingError("--shares must be finite numbers")
    if sum(shares) <= 0:
        raise AveragingError("--shares must have a sum above 0")
    average(given.models, shares, given.output)
    return 0


def _opened(model: str) -> SentenceTransformer:
    from sentence_transformers import SentenceTransformer

    from export.requirements import absence, first_line
    from export.source import only_own_code

    reason = absence(model)
    if reason is not None:
        raise AveragingError(f"{model}: {reason}")
    try:
        trusted = only_own_code(model)
        return SentenceTransformer(model, device="cpu", trust_remote_code=trusted)
    except (OSError, ValueError, KeyError) as error:
        reason = first_line(error)
        raise AveragingError(f"{model}: cannot be opened as an encoder ({reason})") from error


def _shapes(part: dict[str, Tensor]) -> dict[str, tuple[int, ...]]:
    return {key: tuple(value.shape) for key, value in part.items()}
