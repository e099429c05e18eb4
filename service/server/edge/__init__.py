"""Code between the socket and the routes: identity, limits, deadlines, errors, logs, metrics."""
