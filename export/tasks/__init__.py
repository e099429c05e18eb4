"""Measure the quality that a graph loses at tasks on held-out data."""
