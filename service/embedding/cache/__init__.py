"""Vectors of windows computed before: in this process, in Redis, and in flight."""
