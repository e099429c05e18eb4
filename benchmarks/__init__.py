"""Measurements of the service and the trainer; README.md lists them."""
