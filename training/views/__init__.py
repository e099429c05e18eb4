"""Two views of one document, by the objective's name.

Every view is a pure function of the document's sentences, a random generator and the settings. A
view is a list of pieces. Each piece is an array of token ids without special tokens. In views made
of sentences, each piece is a sentence.
"""

from training.settings import ObjectiveSettings, ViewName
from training.views.coco import coco
from training.views.docsplit import docsplit
from training.views.laser import laser_intra, laser_self, laser_window
from training.views.mixture import Mixture
from training.views.spans import slices, spans, spans_and_slices
from training.views.types import Document, Pair, View, ViewContext, ViewFunction
from training.views.whole import mlm, simcse

__all__ = ["VIEWS", "Document", "Pair", "View", "ViewContext", "ViewFunction", "view_of"]

# the views of a single document; linked documents' are in training.links
VIEWS: dict[ViewName, ViewFunction] = {
    "docsplit": docsplit,
    "simcse": simcse,
    "span": spans,
    "slice": slices,
    "span+slice": spans_and_slices,
    "laser-self": laser_self,
    "laser-intra": laser_intra,
    "laser-window": laser_window,
    "coco": coco,
    "mlm": mlm,
}


def view_of(objective: ObjectiveSettings) -> ViewFunction | None:
    """The function that draws views of single documents; None if all views are of linked ones."""
    kinds = [VIEWS[name] for name in objective.mix]
    if objective.view != "links":
        kinds = [VIEWS[objective.view], *kinds]
    if len(kinds) < 2:
        return kinds[0] if kinds else None
    if objective.view == "links":
        # the share of documents without links is settled before one of these kinds is drawn
        return Mixture(kinds[0], kinds[1:], 1 - 1 / len(kinds))
    return Mixture(kinds[0], kinds[1:], objective.mix_share)
