"""Routes for people who label documents."""
