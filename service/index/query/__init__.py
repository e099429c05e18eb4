"""Search, filters, links and lists."""
