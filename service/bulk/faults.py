"""What keeps a run from starting."""


class ClusterError(Exception):
    """No Ray cluster at that address, or none that can embed."""


class CommandError(RuntimeError):
    """A command that cannot be carried out; the message says how to mend it."""
