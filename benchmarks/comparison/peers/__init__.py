"""Other embedding servers, each in an environment of its own, on all-MiniLM-L6-v2."""
