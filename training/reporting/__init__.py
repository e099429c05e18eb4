"""What a training run shows: progress, records, curves and plots."""
