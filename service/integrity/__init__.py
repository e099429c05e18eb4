"""Integrity of the store: digests of files, a check of all data, and its repair."""
