"""Search among many vectors, and the cost of a large index."""
