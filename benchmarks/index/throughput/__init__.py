"""Searches a second with several clients at once."""
