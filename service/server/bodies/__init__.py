"""The content of request and response bodies, and its checks."""
