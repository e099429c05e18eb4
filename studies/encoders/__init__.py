"""Studies of training encoders."""
