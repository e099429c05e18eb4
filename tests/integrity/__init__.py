"""Integrity of what is stored."""
