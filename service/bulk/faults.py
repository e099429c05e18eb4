"""What keeps a run from starting."""


class ClusterError(Exception):
    """No Ray cluster at that address, or none that can embed."""
