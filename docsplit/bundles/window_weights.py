"""The weights of a document's windows, in ``bundle.json``."""

from typing import Literal

from pydantic import Field

from docsplit.bundles.strict import Strict

# with more, a document of many windows would be little else than its first one
MOST_FIRST_WINDOW = 16.0

WeightUnit = Literal["tokens", "letters"]


class WindowWeights(Strict):
    """How much each window of a document counts in its vector."""

    unit: WeightUnit = Field(
        default="tokens", description="what is counted: a table has few letters for its tokens"
    )
    first: float = Field(
        default=1.0,
        gt=0,
        le=MOST_FIRST_WINDOW,
        description="how many times those of the first window count",
    )
