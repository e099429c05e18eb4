"""Encoders: any model of transformers, and short models extended to long inputs."""
