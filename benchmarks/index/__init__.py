"""Search among many vectors, and what a large index takes."""
