"""Finished studies; README.md lists their questions and answers."""
