"""Windows of many requests become full batches."""
