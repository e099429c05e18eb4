"""Computes the map of an index in a process of its own: positions, topics and their words."""
