"""Small models on top of frozen features."""
