"""Encoders made of others: averaged weights, and a linear map behind an encoder."""

import argparse
import hashlib
import heapq
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy.stats import ortho_group
from sentence_transformers.sentence_transformer.modules import Dense, Normalize
from torch import Tensor

from docsplit.corpora.documents import read_texts
from docsplit.corpora.fields import DataError, Fields, add_field_flags
from export.options import count
from export.progress import Progress
from export.source import save_with_code
from training.encoder import open_saved
from training.errors import SettingsError
from training.evaluation.encoders import Representation, opened
from training.evaluation.metrics import difference_interval
from training.tokens import split_sentences
from training.trainer.output import complete, write_record
from training.views import halves

AVERAGE_DESCRIPTION = """\
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
        SettingsError: a model cannot be opened, two differ in their parameters' names or shapes,
            or the folder exists.
        OutputError: the disk is full or not writable.
    """
    if folder.exists():
        raise SettingsError(f"{folder} exists; take another --output or remove it")
    first, *others = [open_saved(model, device="cpu") for model in models]
    parts = [model.state_dict() for model in (first, *others)]
    for name, part in zip(models[1:], parts[1:], strict=True):
        if _shapes(part) != _shapes(parts[0]):
            raise SettingsError(
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
        write_record(draft, models, "the mean of their weights", {"average": made})


def average_main(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit status.

    Raises:
        SettingsError: see ``average``; also if the numbers of models and shares do not fit.
        OutputError: see ``average``.
    """
    parser = argparse.ArgumentParser(
        prog="docsplit-train average",
        description=AVERAGE_DESCRIPTION,
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
        raise SettingsError("one model is not enough: name two or more")
    if len(shares) != len(given.models):
        raise SettingsError(f"--shares: {len(shares)} shares for {len(given.models)} models")
    if not all(map(math.isfinite, shares)):
        raise SettingsError("--shares must be finite numbers")
    if sum(shares) <= 0:
        raise SettingsError("--shares must have a sum above 0")
    average(given.models, shares, given.output)
    return 0


def _shapes(part: dict[str, Tensor]) -> dict[str, tuple[int, ...]]:
    return {key: tuple(value.shape) for key, value in part.items()}


# one document in so many measures the gain and does not fit the map
_HELD_OUT = 10


@dataclass(frozen=True)
class Halves:
    """Halves of documents, as texts.

    Attributes:
        fitting, held_out: pairs of halves of the documents that fit the map, and of the others.
        read: documents of the file or folder; those of one sentence and copies are never drawn.
    """

    fitting: list[tuple[str, str]]
    held_out: list[tuple[str, str]]
    read: int


def draw(path: Path, fields: Fields, most: int, seed: int) -> Halves:
    """Halves of ``most`` documents, or of all if there are fewer.

    The digests of the texts decide which documents are drawn and which are held out, so a copy of
    a document is not in both parts. Memory holds only the documents that were drawn.

    Raises:
        DataError: the path cannot be read, or it has fewer than 20 documents of two sentences.
    """
    drawn: list[tuple[int, str]] = []
    seen: set[int] = set()
    read = 0
    for document in read_texts(path, fields):
        read += 1
        digest = hashlib.sha256(f"{seed}:{document.text}".encode("utf-8", "surrogatepass")).digest()
        # a heap of the smallest numbers has its largest first
        number = -int.from_bytes(digest[:8], "big")
        if number in seen or (len(drawn) == most and number < drawn[0][0]):
            continue
        if len(split_sentences(document.text)) < 2:
            continue
        seen.add(number)
        if len(drawn) < most:
            heapq.heappush(drawn, (number, document.text))
        else:
            seen.remove(heapq.heapreplace(drawn, (number, document.text))[0])
    if len(drawn) < 2 * _HELD_OUT:
        raise DataError(
            f"{path}: {len(drawn)} different documents of two sentences or more; a map needs at "
            f"least {2 * _HELD_OUT}"
        )
    pairs = [split(text, -number) for number, text in sorted(drawn, reverse=True)]
    return Halves(
        [pair for place, pair in enumerate(pairs) if place % _HELD_OUT],
        pairs[::_HELD_OUT],
        read,
    )


def split(text: str, seed: int) -> tuple[str, str]:
    """Two halves of a text: a coin decides for each sentence (SimLTE / DocSplit, section 2.2).

    Args:
        text: two sentences or more.
        seed: of the coin.
    """
    first, second = halves(split_sentences(text), np.random.default_rng(seed))
    return " ".join(first), " ".join(second)


Floats = NDArray[np.float32]
# unit vectors of the first and second halves of documents, [documents, dimensions] each
Pair = tuple[Floats, Floats]


def fit(corpora: Sequence[Pair], power: float, ridge: float) -> Floats:
    """The map W of ``v → v @ W``, symmetric, float32 ``[dimensions, dimensions]``.

    Within-class covariance normalisation (Hatch et al. 2006, "Within-class covariance normalization
    for SVM-based speaker recognition"): a document is the class, and its halves are the samples.
    W = (S / s + ridge · I) ^ -power, where S is the covariance of the differences between halves
    and s is its mean eigenvalue. Directions in which the halves of a document differ count less.
    DocSplit pulls the halves together too, by gradient steps.

    Args:
        corpora: every corpus counts the same, whatever its number of documents.
        power: 0 changes nothing, 0.5 whitens.
        ridge: the larger, the less the map changes.
    """
    dimensions = corpora[0][0].shape[1]
    covariance = np.zeros((dimensions, dimensions))
    for first, second in corpora:
        differences = (first - second).astype(np.float64)
        covariance += differences.T @ differences / len(differences)
    values, directions = np.linalg.eigh(covariance)
    scales = (np.maximum(values, 0) / values.mean() + ridge) ** -power
    # vectors of length 1 stay near 1
    scales /= scales.mean()
    weights: Floats = ((directions * scales) @ directions.T).astype(np.float32)
    return weights


def reduced(
    corpora: Sequence[Pair],
    weights: Floats,
    dimensions: int,
    rotation: np.random.Generator | None = None,
) -> Floats:
    """A map that also keeps only the principal components of what ``weights`` gives.

    The components are those of the second moments of unit vectors, not of their covariance:
    cosines compare directions from the origin. In falling order, shorter prefixes of the vectors
    are good vectors too, but the first components hold most of the variance. Adam scales each
    dimension by itself, so a classifier that it trains on few such vectors does worse. A rotation
    spreads the variance and changes no cosine.

    Args:
        corpora: every corpus counts the same, whatever its number of documents.
        weights: float32 ``[inputs, outputs]``.
        dimensions: components to keep, at most ``outputs``.
        rotation: draws the rotation; None leaves the components in falling order.

    Returns:
        float32 ``[inputs, dimensions]``.
    """
    moments = np.zeros((weights.shape[1], weights.shape[1]))
    for pair in corpora:
        mapped = _unit(np.concatenate(pair) @ weights).astype(np.float64)
        moments += mapped.T @ mapped / len(mapped)
    _, directions = np.linalg.eigh(moments)
    kept = weights @ directions[:, ::-1][:, :dimensions]
    if rotation is not None:
        kept = kept @ ortho_group.rvs(dimensions, random_state=rotation)
    mapped_to: Floats = kept.astype(np.float32)
    return mapped_to


@dataclass(frozen=True)
class Gain:
    """How first halves find their second halves among those of all held-out documents.

    Attributes:
        documents: held-out documents.
        before, after: mean reciprocal rank without and with the map.
        interval: 95 % bootstrap interval of the difference.
    """

    documents: int
    before: float
    after: float
    interval: tuple[float, float]


def measure(held_out: Pair, weights: Floats) -> Gain:
    """The gain of a map on documents that did not fit it."""
    before = _reciprocal_ranks(*held_out)
    first, second = (_unit(half @ weights) for half in held_out)
    after = _reciprocal_ranks(first, second)
    interval = difference_interval(before, after)
    return Gain(len(before), float(before.mean()), float(after.mean()), interval)


def _reciprocal_ranks(first: Floats, second: Floats) -> NDArray[np.float64]:
    scores = first @ second.T
    own = scores.diagonal()[:, None]
    ranks: NDArray[np.float64] = 1.0 / (scores >= own).sum(1)
    return ranks


def _unit(vectors: Floats) -> Floats:
    scaled: Floats = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return scaled


# lengths of prefixes of principal components that the result declares
_PREFIXES = (512, 256, 128, 64)
WHITEN_DESCRIPTION = """\
Fit a linear map after an encoder, without labels, in minutes on a CPU: DocSplit in closed form.
Directions in which the two halves of a document differ count less afterwards.

  docsplit-train whiten all-MiniLM-L6-v2 news.parquet papers.jsonl --output runs/whitened

--dimensions also shortens the vectors, to their principal components; with --power 0 it does
nothing else. Every corpus counts the same. A tenth of the documents does not fit the map and shows
its gain: the first half of a document should find its second half. The result is a
sentence-transformers folder for docsplit-export. To continue an interrupted run, repeat the same
command.
"""


def whiten_main(arguments: Sequence[str]) -> int:
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
    progress = Progress(console)
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
        how = f"a linear map behind it, fitted on {len(corpora)} corpora"
        write_record(draft, [given.encoder], how, {"whiten": _record(given, corpora, gains)})
    console.print(_table(given.corpora, gains))
    console.print(f"model: {given.output}", markup=False)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="docsplit-train whiten",
        description=WHITEN_DESCRIPTION,
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
    model = open_saved(given.encoder, device="cpu")
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
