"""Held-out data with answers: labelled and judged documents, read from files."""
