"""Integrity of what is stored: digests of files, a check of all that is kept, and its repair."""
