"""Equal loads for every server. One server runs one round at a time."""
