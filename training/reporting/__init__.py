"""Progress, records, curves and plots of a training run."""
