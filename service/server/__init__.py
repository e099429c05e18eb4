"""The HTTP server: the application, its life cycle, its edge and its routes."""
