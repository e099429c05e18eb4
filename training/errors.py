"""Errors that users can fix. Each message says how."""


class TrainingError(Exception):
    """Base class of training errors. The command line prints the message without a traceback."""


class SettingsError(TrainingError):
    """A setting is unknown, missing or out of range. The message names it."""


class CheckpointError(TrainingError):
    """A checkpoint cannot be written or does not belong to this run."""


class OutputError(TrainingError):
    """The resulting encoder cannot be written."""


class DivergedError(TrainingError):
    """The loss or its gradient is not finite, or the loss has risen back towards chance."""


class HeadError(TrainingError):
    """A head could not be trained or does not fit its bundle."""
