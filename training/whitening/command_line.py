"""``docsplit-train whiten``: fit a map after an encoder and write both as one encoder."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from corpora.fields import Fields, add_field_flags
from training.errors import SettingsError
from training.evaluation.encoders.interface import Representation
from training.evaluation.encoders.opening import opened
from training.evaluation.progress import EmbeddingProgress
from training.trainer.output import write_record
from training.whitening.fitting import Floats, Gain, Pair, fit, measure
from training.whitening.halves import Halves, draw

DESCRIPTION = """\
Fit a linear map after an encoder, without labels, in minutes on a CPU: DocSplit in closed form.
Directions in which the two halves of a document differ count less afterwards.

  docsplit-train whiten all-MiniLM-L6-v2 news.parquet papers.jsonl --output runs/whitened

Every corpus counts the same. A tenth of the documents does not fit the map and shows its gain:
the first half of a document should find its second half. The result is a sentence-transformers
folder for docsplit-export. To continue an interrupted run, repeat the same command.
"""


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit status.

    Raises:
        SettingsError: a flag is out of range, the output exists, or the encoder does not open.
        DataError: a corpus cannot be read or is too small.
    """
    given = _parser().parse_args(arguments)
    if given.output.exists():
        raise SettingsError(f"{given.output} exists; take another --output or remove it")
    for flag, value, low in (("power", given.power, 0), ("ridge", given.ridge, 0)):
        if not value > low or not np.isfinite(value):
            raise SettingsError(f"--{flag} must be above {low}, not {value}")
    if given.documents < 20:
        raise SettingsError(f"--documents must be at least 20, not {given.documents}")
    console = Console(highlight=False)
    fields = Fields.given(given)
    corpora = [draw(path, fields, given.documents, given.seed) for path in given.corpora]
    cache = given.cache or given.output.with_name(f"{given.output.name}.vectors")
    progress = EmbeddingProgress(console)
    with opened(
        given.encoder, cache, max_tokens=given.max_tokens, progress=progress
    ) as representation:
        fitting = [_vectors(representation, one.fitting) for one in corpora]
        held_out = [_vectors(representation, one.held_out) for one in corpora]
    weights = fit(fitting, given.power, given.ridge)
    gains = [measure(pair, weights) for pair in held_out]
    _save(given.encoder, given.max_tokens, weights, given.output)
    write_record(given.output, {"whiten": _record(given, corpora, gains)})
    console.print(_table(given.corpora, gains))
    console.print(f"model: {given.output}", markup=False)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="docsplit-train whiten",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("encoder", help="sentence-transformers folder or hub name")
    parser.add_argument("corpora", nargs="+", type=Path, help="files or folders of documents")
    parser.add_argument("--output", required=True, type=Path, help="folder of the result")
    parser.add_argument(
        "--documents", type=int, default=5000, help="most documents of a corpus (default: 5000)"
    )
    parser.add_argument(
        "--power", type=float, default=0.25, help="of the map: 0.5 whitens (default: 0.25)"
    )
    parser.add_argument(
        "--ridge",
        type=float,
        default=0.05,
        help="added to every variance, as a share of their mean (default: 0.05)",
    )
    parser.add_argument("--max-tokens", type=int, help="window (default: the encoder's)")
    parser.add_argument("--seed", type=int, default=0, help="of the draw and the halves")
    parser.add_argument(
        "--cache", type=Path, help="folder of computed vectors (default: OUTPUT.vectors)"
    )
    add_field_flags(parser, "text", "id")
    return parser


def _vectors(representation: Representation, pairs: Sequence[tuple[str, str]]) -> Pair:
    both: Floats = representation.features([half for pair in pairs for half in pair])
    return both[::2], both[1::2]


def _save(encoder: str, max_tokens: int | None, weights: Floats, folder: Path) -> None:
    """Write the encoder with Normalize, the map and Normalize at its end."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Dense, Normalize

    model = SentenceTransformer(encoder, device="cpu")
    if max_tokens is not None:
        model.max_seq_length = max_tokens
    if not isinstance(model[-1], Normalize):
        model.append(Normalize())
    width = len(weights)
    dense = Dense(width, width, bias=False, activation_function=torch.nn.Identity())
    dense.linear.weight = torch.nn.Parameter(torch.from_numpy(weights.T.copy()))
    model.append(dense)
    model.append(Normalize())
    model.save_pretrained(str(folder), create_model_card=False)


def _record(
    given: argparse.Namespace, corpora: Sequence[Halves], gains: Sequence[Gain]
) -> dict[str, Any]:
    return {
        "encoder": given.encoder,
        "power": given.power,
        "ridge": given.ridge,
        "seed": given.seed,
        "corpora": [
            {
                "name": path.name,
                "documents": len(halves.fitting),
                "read": halves.read,
                "held_out": asdict(gain),
            }
            for path, halves, gain in zip(given.corpora, corpora, gains, strict=True)
        ],
    }


def _table(corpora: Sequence[Path], gains: Sequence[Gain]) -> Table:
    table = Table("corpus", "held out", "MRR of halves", "with the map", "95 % of the difference")
    for path, gain in zip(corpora, gains, strict=True):
        low, high = gain.interval
        numbers = f"{gain.before:.4f}", f"{gain.after:.4f}", f"{low:+.4f} to {high:+.4f}"
        table.add_row(path.name, str(gain.documents), *numbers)
    return table
