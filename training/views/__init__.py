"""Two views of one document, by the objective's name.

Every view is a pure function of the document's sentences, a random generator and the settings. A
view is a list of pieces, each an array of token ids without special tokens; pieces are sentences
where the view is made of sentences.
"""

from __future__ import annotations

from collections.abc import Callable

from training.settings import ViewName
from training.views.coco import coco
from training.views.docsplit import docsplit
from training.views.laser import laser_intra, laser_self
from training.views.spans import slices, spans, spans_and_slices
from training.views.types import Document, Pair, View, ViewContext
from training.views.whole import mlm, simcse

__all__ = ["VIEWS", "Document", "Pair", "View", "ViewContext", "ViewFunction"]

ViewFunction = Callable[..., Pair]

VIEWS: dict[ViewName, ViewFunction] = {
    "docsplit": docsplit,
    "simcse": simcse,
    "span": spans,
    "slice": slices,
    "span+slice": spans_and_slices,
    "laser-self": laser_self,
    "laser-intra": laser_intra,
    "coco": coco,
    "mlm": mlm,
}
