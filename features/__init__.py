"""Features of the service that can be left out; each registers itself, see service/features.py."""
