"""Studies of searches by words."""
