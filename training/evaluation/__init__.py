"""Measures of an encoder on documents it was not trained on."""
