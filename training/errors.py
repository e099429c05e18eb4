"""Errors that users can fix. Each message says how."""


class TrainingError(Exception):
    """Base class of training errors. The command line prints the message without a traceback."""


def explained(error: Exception) -> str:
    """The message for users of an error that they can fix.

    Raises:
        OSError: one of a connection, which has no number; only those of files can be fixed.
    """
    if not isinstance(error, OSError):
        return str(error)
    if error.errno is None:
        raise error
    return f"{error}; free space or correct the path, then repeat the command"


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


class AveragingError(TrainingError):
    """The weights of the encoders cannot be averaged."""
