"""Measures of predicted classes."""

import numpy as np
import numpy.typing as npt
from sklearn.metrics import accuracy_score, f1_score

Labels = npt.NDArray[np.int64]


def accuracy(truth: Labels, predicted: Labels) -> float:
    """Share of correct predictions."""
    return float(accuracy_score(truth, predicted))


def macro_f1(truth: Labels, predicted: Labels) -> float:
    """Mean of F1 over the classes that are true or predicted somewhere."""
    return float(f1_score(truth, predicted, average="macro", zero_division=0))
