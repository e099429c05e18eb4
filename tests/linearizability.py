"""A checker for histories of concurrent operations on one object.

A history is linearizable if each operation can be assigned one moment between its call and its end,
so that the object, executing them in this order, gives the observed results (Herlihy and Wing
1990). The search is Wing and Gong's (1993) with Lowe's memory (2017): it visits each set of
finished operations, with its final state, once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

State = TypeVar("State")
Operation = TypeVar("Operation")

NEVER = math.inf


@dataclass(frozen=True, slots=True)
class Event(Generic[Operation]):
    """One operation of a history.

    Attributes:
        call: when it began.
        end: when its result was seen; ``NEVER`` if unknown: it may have taken effect at any later
            moment, or not at all.
    """

    call: float
    end: float
    operation: Operation


def linearizable(
    history: Sequence[Event[Operation]],
    step: Callable[[State, Operation], Iterable[State]],
    initial: State,
) -> bool:
    """Whether a history is linearizable.

    Args:
        history: operations on one object, in any order.
        step: the states that an operation with its result may leave; none if the result cannot come
            from that state. States are hashable.
        initial: the state before the first operation.
    """
    events = sorted(history, key=lambda event: event.call)
    must = sum(1 << i for i, event in enumerate(events) if event.end < NEVER)
    waiting = [(0, initial)]
    seen = {(0, initial)}
    while waiting:
        done, state = waiting.pop()
        if done & must == must:
            return True
        rest = [(i, event) for i, event in enumerate(events) if not done >> i & 1]
        first_end = min(event.end for _, event in rest)
        for i, event in rest:
            if event.call > first_end:
                break
            for left in step(state, event.operation):
                after = (done | 1 << i, left)
                if after not in seen:
                    seen.add(after)
                    waiting.append(after)
    return False
