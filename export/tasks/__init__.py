"""Quality at tasks: what a graph loses of its source on held-out data."""
