"""The figures that a graph must reach."""

from collections.abc import Iterator, Mapping
from typing import Any, get_args

from docsplit.bundles.manifest import Contents, Parity, PrecisionName, RankParity, TaskName
from export.errors import ExportError
from export.tasks import LIMITS

# Lowest figures of a graph's vectors. Users feel the neighbours and the mean. The lowest cosine
# only shows that no text is broken: correct fp16 of an encoder of 110 M weights reaches .9996 on
# a rare text (docs/how-to/export.md). int8 also moves paragraphs whose distances are almost
# equal, so the nearest neighbour changes more often than the cosine suggests.
THRESHOLDS: Mapping[PrecisionName, Mapping[str, float]] = {
    "fp16": {"cosine_mean": 0.9999, "cosine_min": 0.999, "neighbour_agreement": 0.99},
    "packed": {"cosine_mean": 0.9999, "cosine_min": 0.999, "neighbour_agreement": 0.99},
    "int8": {"cosine_mean": 0.995, "cosine_min": 0.985, "neighbour_agreement": 0.85},
}

# Figures of a re-ranker's scores. Users feel the order of the texts, and those who keep only texts
# above a score feel its error. The largest error shows that no pair is broken.
RANKS: Mapping[PrecisionName, Mapping[str, float]] = {
    "fp16": {
        "kendall_tau": 0.98,
        "same_first": 0.95,
        "score_error_mean": 0.002,
        "score_error_max": 0.02,
    },
    "int8": {
        "kendall_tau": 0.85,
        "same_first": 0.85,
        "score_error_mean": 0.02,
        "score_error_max": 0.15,
    },
}
RANKS = {**RANKS, "packed": RANKS["fp16"]}
# of these the largest value is allowed, of all others the lowest
_ERRORS = ("score_error_mean", "score_error_max")

# for figures that do not say how much smaller the error must be
_HALF = 0.5

AnyParity = Parity | RankParity
# thresholds that the user sets, by names such as int8.cosine_min
Given = Mapping[str, float]


def limits(
    precision: PrecisionName, given: Given | None = None, *, ranks: bool = False
) -> dict[str, float]:
    """The limits of the figures of a graph's vectors, or of a re-ranker's ``ranks``, by name."""
    usual = (RANKS if ranks else THRESHOLDS)[precision].items()
    return {name: (given or {}).get(f"{precision}.{name}", value) for name, value in usual}


def losses(precision: PrecisionName, given: Given | None = None) -> dict[TaskName, float]:
    """The largest losses at tasks, by name."""
    return {n: (given or {}).get(f"{precision}.{n}", value) for n, value in LIMITS.items()}


def parse(text: str) -> tuple[str, float]:
    """Read an argument of ``--threshold``, for example ``int8.cosine_min=0.98``.

    Raises:
        ValueError: there is no such threshold, or the value is not between 0 and 1.
    """
    name, _, number = text.partition("=")
    precision, _, figure = name.partition(".")
    figures = [*THRESHOLDS["fp16"], *LIMITS, *RANKS["fp16"]]
    if precision not in get_args(PrecisionName) or figure not in figures:
        raise ValueError(
            f"no threshold {name}; give PRECISION.FIGURE=VALUE with a precision of "
            f"{', '.join(get_args(PrecisionName))} and a figure of {', '.join(figures)}"
        )
    value = float(number)
    if not 0 <= value <= 1:
        raise ValueError(f"{name}: the value must be between 0 and 1")
    return name, value


def check_figures(given: Given, *, reranker: bool = False) -> None:
    """Refuse thresholds for figures that a source does not have.

    Raises:
        ExportError: the message names the figures.
    """
    known = [*RANKS["fp16"]] if reranker else [*THRESHOLDS["fp16"], *LIMITS]
    strange = [name for name in given if name.partition(".")[2] not in known]
    if strange:
        kind = "a re-ranker" if reranker else "an encoder"
        raise ExportError(
            f"--threshold {', '.join(strange)}: {kind} is measured by {', '.join(known)}"
        )


def agreed(manifest: Contents[Any]) -> dict[str, float]:
    """A bundle's thresholds, as far as they are less strict than the usual ones."""
    found: dict[str, float] = {}
    for name, precision in manifest.precisions.items():
        parity: AnyParity = precision.parity
        usual = limits(name, ranks=isinstance(parity, RankParity))
        for figure, value in parity.thresholds.items():
            lenient = max if figure in _ERRORS else min
            found[f"{name}.{figure}"] = lenient(value, usual.get(figure, value))
        for task in parity.tasks if isinstance(parity, Parity) else ():
            found[f"{name}.{task.task}"] = max(task.threshold, losses(name)[task.task])
    return found


def error_of(parity: AnyParity) -> float:
    """The mean distance of a graph's outputs to the source's, see ``export.gate``."""
    return parity.score_error_mean if isinstance(parity, RankParity) else 1 - parity.cosine_mean


def remaining(parity: AnyParity) -> float:
    """The share of the present error that may remain, if the graph is to hold its thresholds."""
    shares = [1.0]
    for name, limit in parity.thresholds.items():
        value = float(getattr(parity, name))
        if name in _ERRORS and value > limit:
            shares.append(limit / value)
        elif name.startswith("cosine") and value < limit:
            shares.append((1 - limit) / (1 - value))
        elif name not in _ERRORS and value < limit:
            shares.append(_HALF)
    if any(_lost(parity)):
        shares.append(_HALF)
    return min(shares)


def misses(parity: AnyParity) -> list[str]:
    """The thresholds that a graph's outputs and tasks miss, in words."""
    return [*_far(parity), *_lost(parity)]


def refusal(precision: PrecisionName, parity: AnyParity) -> ExportError:
    """The error for a graph that misses a threshold."""
    said = []
    if far := list(_far(parity)):
        measured = (
            f"{parity.pairs} pairs"
            if isinstance(parity, RankParity)
            else f"{parity.paragraphs} paragraphs"
        )
        said.append(f"{precision} is too far from the source on {measured}: " + "; ".join(far))
    if lost := list(_lost(parity)):
        said.append(f"{precision} loses too much of the source; " + "; ".join(lost))
    return ExportError("; ".join(said))


def _far(parity: AnyParity) -> Iterator[str]:
    for name, limit in parity.thresholds.items():
        value = float(getattr(parity, name))
        if name in _ERRORS and value > limit:
            yield f"{name} {value:.7f} is above {limit}"
        elif name not in _ERRORS and value < limit:
            yield f"{name} {value:.7f} is below {limit}"


def _lost(parity: AnyParity) -> Iterator[str]:
    for one in parity.tasks if isinstance(parity, Parity) else ():
        if one.loss > one.threshold:
            yield (
                f"{one.task} on {one.data}: {one.metric} {one.graph:.4f}, the source's "
                f"{one.source:.4f}, a loss of {one.loss:.4f}, but only {one.threshold} is allowed"
            )
