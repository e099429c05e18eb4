"""A service that cannot import some modules."""
