"""Integrity of the store."""
