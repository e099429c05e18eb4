"""Effects on callers of overload and of a failing replica, Redis or disk."""
