"""Write a graph, and keep operators in floating point until it holds its thresholds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from docsplit.bundles.manifest import PrecisionName, Repair
from export.checks.gate import Judge, Measured
from export.checks.thresholds import AnyParity, error_of, misses, refusal, remaining
from export.errors import ExportError
from export.repair.choice import Choice
from export.repair.forms import Form

# A graph that keeps more of its multiplications is no longer the form that the user asked for.
MOST = 0.5
_ROUNDS = 8
# Below this share of the graph's error, avoiding every rounding of values would not repair it.
_EXPLAINED = 0.02


@dataclass(frozen=True)
class Made:
    """A written graph with its measurements.

    Attributes:
        kernels: number of each fused or quantised operator.
        parity: the figures, tasks included.
        repair: what stays in floating point; None if nothing had to.
        accepted: thresholds that it misses, which the user accepts.
    """

    kernels: dict[str, int]
    parity: AnyParity
    repair: Repair | None
    accepted: list[str]


def make(form: Form, gate: Judge, *, accept: bool, note: Callable[[str], None]) -> Made:
    """Write and measure a graph; keep operators in floating point if it misses a threshold.

    Args:
        form: the form to write.
        gate: measures it.
        accept: whether the user accepts a graph that still misses a threshold.
        note: called with what misses, what was kept and what that costs.

    Raises:
        ExportError: the graph is not finite, or misses a threshold that the user does not accept.
    """
    kernels, repair = form.write(), None
    first = found = _measure(form, gate)
    why_not = f"{_ROUNDS} attempts to repair it were not enough"
    if misses(first.parity):
        note(f"{refusal(form.name, first.parity)}; finding the operators that cost most")
        choice = form.choice(gate.sample(first))
        error = error_of(first.parity)
        for _ in range(_ROUNDS):
            if choice.error < _EXPLAINED * error:
                why_not = (
                    f"the rounding of values that is left explains only {choice.error:.1g} of its "
                    f"mean error of {error:.1g}; the rest has another cause"
                )
                break
            grown = choice.reduce(remaining(found.parity))
            if not grown or choice.multiplications > MOST:
                why_not = _reason(choice, grown)
                break
            kernels = form.write(choice.kept)
            found = _measure(form, gate)
            repair = _repair(first, choice)
            if not misses(found.parity):
                break
    if misses(found.parity):
        if not accept:
            raise ExportError(
                f"{refusal(form.name, found.parity)}; {why_not}; --accept {form.name} writes it"
            )
        found = _with_tasks(form, gate, found)
    if repair is not None:
        note(_cost(form.name, repair, first, found))
    return Made(kernels, found.parity, repair, misses(found.parity))


def _measure(form: Form, gate: Judge) -> Measured:
    """Measure the tasks only if the vectors hold their thresholds, because tasks are slower."""
    found = gate.parity(form.name, form.graph)
    return found if misses(found.parity) else _with_tasks(form, gate, found)


def _with_tasks(form: Form, gate: Judge, found: Measured) -> Measured:
    return replace(found, parity=gate.with_losses(form.name, form.graph, found.parity))


def _reason(choice: Choice, grown: bool) -> str:
    if grown:
        return (
            f"to hold them, more than {MOST:.0%} of its multiplications would have to stay in "
            "floating point"
        )
    return f"with {len(choice.kept)} operators in floating point, no rounding is left to avoid"


def _repair(first: Measured, choice: Choice) -> Repair:
    names = first.parity.thresholds
    return Repair(
        before={name: float(getattr(first.parity, name)) for name in names},
        kept=dict(choice.kept),
        multiplications=round(choice.multiplications, 4),
    )


def _cost(name: PrecisionName, repair: Repair, first: Measured, last: Measured) -> str:
    """What repair costs in speed, as measured on this machine."""
    slower = last.seconds / first.seconds - 1
    return (
        f"{name}: {len(repair.kept)} operators stay in floating point, "
        f"{repair.multiplications:.1%} of the multiplications; encoding the paragraphs took "
        f"{last.seconds:.1f} s, {first.seconds:.1f} s before ({slower:+.0%})"
    )
