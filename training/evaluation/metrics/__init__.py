"""Measures, as functions of vectors, scores or labels."""
