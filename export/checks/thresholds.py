"""The figures that a graph must reach."""

from collections.abc import Iterator, Mapping
from typing import get_args

from bundles.manifest import Parity, PrecisionName, TaskName
from export.errors import ExportError
from export.tasks.loss import LIMITS

# Lowest figures of a graph's vectors. Users feel the neighbours and the mean. The lowest cosine
# only shows that no text is broken: correct fp16 of an encoder of 110 M weights reaches .9998 on
# its worst passage (docs/how-to/export.md). int8 also moves paragraphs whose distances are almost
# equal, so the nearest neighbour changes more often than the cosine suggests.
THRESHOLDS: Mapping[PrecisionName, Mapping[str, float]] = {
    "fp16": {"cosine_mean": 0.9999, "cosine_min": 0.999, "neighbour_agreement": 0.99},
    "packed": {"cosine_mean": 0.9999, "cosine_min": 0.999, "neighbour_agreement": 0.99},
    "int8": {"cosine_mean": 0.995, "cosine_min": 0.985, "neighbour_agreement": 0.85},
}

# thresholds that the user sets, by names such as int8.cosine_min
Given = Mapping[str, float]


def floors(precision: PrecisionName, given: Given | None = None) -> dict[str, float]:
    """The lowest figures of a graph's vectors, by name."""
    names = THRESHOLDS[precision].items()
    return {name: (given or {}).get(f"{precision}.{name}", value) for name, value in names}


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
    figures = [*THRESHOLDS["fp16"], *LIMITS]
    if precision not in get_args(PrecisionName) or figure not in figures:
        raise ValueError(
            f"no threshold {name}; give PRECISION.FIGURE=VALUE with a precision of "
            f"{', '.join(get_args(PrecisionName))} and a figure of {', '.join(figures)}"
        )
    value = float(number)
    if not 0 <= value <= 1:
        raise ValueError(f"{name}: the value must be between 0 and 1")
    return name, value


def misses(parity: Parity) -> list[str]:
    """The thresholds that a graph's vectors and tasks miss, in words."""
    return [*_far(parity), *_lost(parity)]


def refusal(precision: PrecisionName, parity: Parity) -> ExportError:
    """The error for a graph that misses a threshold."""
    said = []
    if far := list(_far(parity)):
        said.append(
            f"{precision} is too far from the source on {parity.paragraphs} paragraphs: "
            + "; ".join(far)
        )
    if lost := list(_lost(parity)):
        said.append(f"{precision} loses too much of the source; " + "; ".join(lost))
    return ExportError("; ".join(said))


def _far(parity: Parity) -> Iterator[str]:
    for name, limit in parity.thresholds.items():
        value = float(getattr(parity, name))
        if value < limit:
            yield f"{name} {value:.7f} is below {limit}"


def _lost(parity: Parity) -> Iterator[str]:
    for one in parity.tasks:
        if one.loss > one.threshold:
            yield (
                f"{one.task} on {one.data}: {one.metric} {one.graph:.4f}, the source's "
                f"{one.source:.4f}, a loss of {one.loss:.4f}, but only {one.threshold} is allowed"
            )
