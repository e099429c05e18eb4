"""Errors that the reader of the message can fix."""

from __future__ import annotations


class TrainingError(Exception):
    """Base of the room's own errors; the command line prints the message without a traceback."""


class SettingsError(TrainingError):
    """A setting that is unknown, missing or out of range; the message names it."""


class CheckpointError(TrainingError):
    """A checkpoint that cannot be written or does not belong to this run."""


class DivergedError(TrainingError):
    """The loss or its gradient is not finite, or has climbed back towards chance."""


class HeadError(TrainingError):
    """A head that could not be trained or does not fit its bundle."""


class AveragingError(TrainingError):
    """Encoders whose weights have no mean."""
