"""Join windows of many requests into full batches."""
