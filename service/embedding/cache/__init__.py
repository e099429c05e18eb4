"""Vectors of known windows: in this process, in Redis, or in computation."""
