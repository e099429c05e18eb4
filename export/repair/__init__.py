"""Keep the operators in floating point whose rounding costs a graph too much."""
