"""Classifiers and citation heads of the service: trainings, examples and stored heads."""
