"""Measurements against the public interface; docs/explanation/performance.md has the figures."""
