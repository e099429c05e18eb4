"""Other embedding servers with all-MiniLM-L6-v2, each in its own environment."""
