"""The HTTP server: application, life cycle, edge and routes."""
