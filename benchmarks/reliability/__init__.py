"""What callers notice under overload, and when a replica, Redis or the disk fails."""
