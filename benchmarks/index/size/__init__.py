"""An index by its size."""
