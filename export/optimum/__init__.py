"""Graphs that optimum exports and optimises, and their comparison with those traced here."""
