"""Indexing on a Ray cluster."""
