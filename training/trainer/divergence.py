"""Stop a run that has diverged."""

import math
import statistics
from collections import deque
from collections.abc import Callable, Sequence

from training.errors import DivergedError


class DivergenceWatch:
    """Raises when the loss or the gradient is not finite, or the loss rises back towards chance.

    The check compares the median of the last ``window`` losses with the lowest such median of the
    run. A rise by half the difference between that minimum and chance is a collapse, not noise.
    """

    def __init__(self, window: int, chance: float) -> None:
        """Watch medians over ``window`` steps.

        Args:
            window: steps.
            chance: loss of an encoder that gives every text the same vector.
        """
        self._recent: deque[float] = deque(maxlen=window)
        self._lowest = math.inf
        self._chance = chance

    def check(
        self,
        step: int,
        loss: float,
        gradient_norm: float,
        learning_rate: float,
        documents: Callable[[], Sequence[str]],
    ) -> None:
        """Check a step.

        Args:
            step: number of the step.
            loss: the minimised loss.
            gradient_norm: L2 norm before clipping.
            learning_rate: learning rate of the step.
            documents: returns the ids of the step's documents; called only when needed.

        Raises:
            DivergedError: the run has diverged. The message gives the figures and the documents.
        """
        if not (math.isfinite(loss) and math.isfinite(gradient_norm)):
            past = ", ".join(f"{x:.4f}" for x in list(self._recent)[-5:]) or "none"
            names = documents()
            shown = ", ".join(names[:8]) + (" ..." if len(names) > 8 else "")
            raise DivergedError(
                f"step {step}: loss {loss}, gradient norm {gradient_norm}, learning rate "
                f"{learning_rate:.3g}; losses before: {past}; documents of the step: {shown}. Try "
                "a lower optimisation.learning_rate or precision fp32"
            )
        self._recent.append(loss)
        if len(self._recent) < (self._recent.maxlen or 0):
            return
        median = statistics.median(self._recent)
        self._lowest = min(self._lowest, median)
        bound = self._lowest + max(0.5 * (self._chance - self._lowest), 0.1 * self._chance)
        if median > bound:
            raise DivergedError(
                f"step {step}: the median loss of the last {len(self._recent)} steps is "
                f"{median:.4f}, the lowest so far was {self._lowest:.4f}, chance is "
                f"{self._chance:.4f}; the run has diverged. Try a lower "
                "optimisation.learning_rate or a longer optimisation.warmup"
            )

    def state(self) -> dict[str, object]:
        """The state for a checkpoint."""
        return {"recent": list(self._recent), "lowest": self._lowest}

    def restore(self, state: dict[str, object]) -> None:
        """Continue from ``state``."""
        self._recent.clear()
        self._recent.extend(state["recent"])  # type: ignore[arg-type]
        self._lowest = float(state["lowest"])  # type: ignore[arg-type]
