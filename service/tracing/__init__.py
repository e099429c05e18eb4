"""Spans of requests. The service always measures them, and sends them by OTLP if configured."""
