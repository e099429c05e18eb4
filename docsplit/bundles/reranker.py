"""The content of ``bundle.json`` of a re-ranker."""

from typing import Any, Literal

from pydantic import Field

from docsplit.bundles.manifest import Contents, Form, RankParity


class RankedPrecision(Form[RankParity]):
    """One numeric form of a re-ranker."""


class RerankerManifest(Contents[RankedPrecision]):
    """``bundle.json`` of a re-ranker: a cross-encoder that scores a query and a text together."""

    kind: Literal["reranker"] = "reranker"
    segment_offset: int = Field(
        ge=0,
        description="what the ids of the second segment are raised by, so that a graph with token "
        "types recognises them; 0 for a graph without",
    )

    def shape(self) -> dict[str, Any]:
        """The settings that change a score, besides those of every bundle."""
        return {"kind": self.kind, "segment_offset": self.segment_offset}
