"""The sets of the evaluation's tests."""

from tests.training.evaluation.conftest import data

__all__ = ["data"]
