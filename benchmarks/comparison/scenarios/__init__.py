"""Loads that every server gets alike; one round of one server at a time."""
