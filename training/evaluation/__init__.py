"""Measure an encoder on documents that its training did not read."""
