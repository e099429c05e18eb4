"""Tokens per second of the engines, without HTTP."""
