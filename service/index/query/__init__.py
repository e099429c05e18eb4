"""Search, filters and lists."""
