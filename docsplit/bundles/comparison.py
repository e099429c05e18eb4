"""Two graphs of the same encoder, by different exporters."""

from typing import Literal

from pydantic import Field

from docsplit.bundles.strict import Strict

# what writes the fp32 graph of a checkpoint
Exporter = Literal["torch", "optimum"]


class ComparedGraph(Strict):
    """One of two graphs of the same encoder, on the same passages."""

    kernels: dict[str, int]
    figures: dict[str, float] = Field(description="of its parity")
    seconds: float = Field(gt=0, description="time for the passages, both graphs in turns")

    def __str__(self) -> str:
        figures = ", ".join(f"{name} {value:.6f}" for name, value in self.figures.items())
        held = ", ".join(f"{count} {kernel}" for kernel, count in self.kernels.items())
        return f"{figures}; {self.seconds:.2f} s; {held or 'no fused kernels'}"


class Comparison(Strict):
    """The graph that was written, and the one that another exporter makes."""

    written: Exporter
    recommended: Exporter
    reason: str
    graphs: dict[Exporter, ComparedGraph]
    failed: dict[Exporter, str] = Field(default_factory=dict, description="why there is no graph")

    def lines(self) -> list[str]:
        """The comparison in words."""
        said = [f"through {name}: {graph}" for name, graph in self.graphs.items()]
        said += [f"through {name}: none, because {why}" for name, why in self.failed.items()]
        return [*said, f"recommended: {self.recommended}, because {self.reason}"]
