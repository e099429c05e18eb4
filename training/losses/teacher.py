"""Distance to a frozen encoder's vectors."""

import torch.nn.functional as F  # noqa: N812 - torch's own convention
from torch import Tensor


def teacher_loss(first: Tensor, second: Tensor, target: Tensor) -> Tensor:
    """1 - cosine of both views of a document to the teacher's vector of the first.

    InfoNCE is satisfied as soon as an elongated text is nearer to its original than to others. This
    loss is satisfied only when the two agree. The method is the distillation on vectors of Reimers
    and Gurevych 2020, "Making Monolingual Sentence Embeddings Multilingual Using Knowledge
    Distillation", section 3, whose second view is a translation. The loss uses the cosine, which
    also compares vectors later, instead of the squared distance.

    Args:
        first: float ``[documents, dimensions]``.
        second: float ``[documents, dimensions]``.
        target: float ``[documents, dimensions]``, the teacher's.

    Returns:
        The mean over all views, a scalar from 0 to 2.
    """
    agreement = F.cosine_similarity(first, target) + F.cosine_similarity(second, target)
    return 1 - agreement.mean() / 2
