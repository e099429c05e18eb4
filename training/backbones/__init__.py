"""Encoders: any of transformers, and short ones made long."""
