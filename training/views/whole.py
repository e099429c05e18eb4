"""Views that contain the whole document."""

import numpy as np

from training.views.types import Document, Pair, ViewContext


def simcse(document: Document, rng: np.random.Generator, context: ViewContext) -> Pair:
    """The same text twice. The views differ only by the encoder's dropout.

    Gao et al. 2021, "SimCSE", section 3; the baseline of the DocSplit paper's section 3.2, which
    calls it "SimCSE-long" on whole documents.
    """
    return list(document), list(document)


def mlm(document: Document, rng: np.random.Generator, context: ViewContext) -> Pair:
    """The whole document, for masked language modelling without contrast.

    Devlin et al. 2019, "BERT", section 3.1; the baseline of the contrastive report's section 4.
    """
    return list(document), None
