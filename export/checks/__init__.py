"""Compare graphs with their checkpoint: parity, finite values, and the gate of tasks."""
