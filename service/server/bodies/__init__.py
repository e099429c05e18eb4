"""What request and response bodies hold, and their checks."""
