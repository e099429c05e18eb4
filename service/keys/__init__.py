"""API keys: the keys' file, the rights and rates of a key, and the command for them."""
