"""Measurements against the public interface; docs/performance.md shows their figures."""
