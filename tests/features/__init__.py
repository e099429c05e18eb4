"""Features that can be left out."""
