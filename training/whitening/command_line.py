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

from docsplit.corpora.fields import Fields, add_field_flags
from export.options import count
from export.source import only_own_code, save_with_code
from training.errors import SettingsError
from training.evaluation.encoders.interface import Representation
from training.evaluation.encoders.opening import opened
from training.evaluation.progress import EmbeddingProgress
from training.trainer.output import complete, write_record
from training.whitening.fitting import Floats, Gain, Pair, fit, measure, reduced
from training.whitening.halves import Halves, draw

# lengths of prefixes of principal components that the result declares
_PREFIXES = (512, 256, 128, 64)
DESCRIPTION = """\
Fit a linear map after an encoder, without labels, in minutes on a CPU: DocSplit in closed form.
Directions in which the two halves of a document differ count less afterwards.

  docsplit-train whiten all-MiniLM-L6-v2 news.parquet papers.jsonl --output runs/whitened

--dimensions also shortens the vectors, to their principal components; with --power 0 it does
nothing else. Every corpus counts the same. A tenth of the documents does not fit the map and shows
its gain: the first half of a document should find its second half. The result is a
sentence-transformers folder for docsplit-export. To continue an interrupted run, repeat the same
command.
"""


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit status.

    Raises:
        SettingsError: a flag is out of range, the output exists, or the encoder does not open.
        DataError: a corpus cannot be read or is too small.
        OutputError: the disk is full or not writable.
    """
    given = _parser().parse_args(arguments)
    if given.output.exists():
        raise SettingsError(f"{given.output} exists; take another --output or remove it")
    shortened = given.dimensions is not None
    if not np.isfinite(given.power) or given.power < 0 or (given.power == 0 and not shortened):
        raise SettingsError(
            f"--power must be above 0, not {given.power}; 0 needs --dimensions, or nothing changes"
        )
    if given.prefixes and not shortened:
        raise SettingsError("--prefixes needs --dimensions")
    if not given.ridge > 0 or not np.isfinite(given.ridge):
        raise SettingsError(f"--ridge must be above 0, not {given.ridge}")
    if given.seed < 0:
        raise SettingsError(f"--seed must be 0 or more, not {given.seed}")
    if given.documents < 20:
        raise SettingsError(f"--documents must be at least 20, not {given.documents}")
    console = Console(highlight=False, markup=False)
    fields = Fields.given(given)
    corpora = [draw(path, fields, given.documents, given.seed) for path in given.corpora]
    cache = given.cache or given.output.with_name(f"{given.output.name}.vectors")
    progress = EmbeddingProgress(console)
    with opened(
        given.encoder, cache, max_tokens=given.max_tokens, progress=progress
    ) as representation:
        if shortened:
            _check_dimensions(given.dimensions, representation, corpora[0])
        fitting = [_vectors(representation, one.fitting) for one in corpora]
        held_out = [_vectors(representation, one.held_out) for one in corpora]
    weights = fit(fitting, given.power, given.ridge)
    if shortened:
        rotation = None if given.prefixes else np.random.default_rng(given.seed)
        weights = reduced(fitting, weights, given.dimensions, rotation)
    gains = [measure(pair, weights) for pair in held_out]
    with complete(given.output, replaces=False) as draft:
        _save(given, weights, draft)
        write_record(draft, {"whiten": _record(given, corpora, gains)})
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
        "--dimensions",
        type=int,
        help="of the result, its principal components (default: those of the encoder)",
    )
    parser.add_argument(
        "--prefixes",
        action="store_true",
        help="with --dimensions: sort them by variance, so that prefixes of 256, 128 and 64 serve "
        "too; classifiers learn worse from few examples (default: spread by a rotation)",
    )
    parser.add_argument(
        "--ridge",
        type=float,
        default=0.05,
        help="added to every variance, as a share of their mean (default: 0.05)",
    )
    parser.add_argument("--max-tokens", type=count, help="window (default: the encoder's)")
    parser.add_argument("--seed", type=int, default=0, help="of the draw and the halves")
    parser.add_argument(
        "--cache", type=Path, help="folder of computed vectors (default: OUTPUT.vectors)"
    )
    add_field_flags(parser, "text", "id")
    return parser


def _check_dimensions(wanted: int, representation: Representation, corpus: Halves) -> None:
    # one text says the width, before hours of embedding
    width = representation.features([corpus.fitting[0][0]]).shape[1]
    if not 0 < wanted <= width:
        raise SettingsError(f"--dimensions must be 1 to {width}, not {wanted}")


def _vectors(representation: Representation, pairs: Sequence[tuple[str, str]]) -> Pair:
    both: Floats = representation.features([half for pair in pairs for half in pair])
    return both[::2], both[1::2]


def _save(given: argparse.Namespace, weights: Floats, folder: Path) -> None:
    """Write the encoder with Normalize, the map and Normalize at its end."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Dense, Normalize

    trusted = only_own_code(given.encoder)
    model = SentenceTransformer(given.encoder, device="cpu", trust_remote_code=trusted)
    if given.max_tokens is not None:
        model.max_seq_length = given.max_tokens
    if not isinstance(model[-1], Normalize):
        model.append(Normalize())
    inputs, outputs = weights.shape
    if given.prefixes:
        transformer: Any = model[0]
        shorter = [length for length in _PREFIXES if length < outputs]
        transformer.auto_model.config.matryoshka_dimensions = shorter
    dense = Dense(inputs, outputs, bias=False, activation_function=torch.nn.Identity())
    dense.linear.weight = torch.nn.Parameter(torch.from_numpy(weights.T.copy()))
    model.append(dense)
    model.append(Normalize())
    save_with_code(model, folder)


def _record(
    given: argparse.Namespace, corpora: Sequence[Halves], gains: Sequence[Gain]
) -> dict[str, Any]:
    return {
        "encoder": given.encoder,
        "power": given.power,
        "ridge": given.ridge,
        "dimensions": given.dimensions,
        "prefixes": given.prefixes,
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
