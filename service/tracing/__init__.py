"""Spans of requests: measured always, sent by OTLP where that is configured."""
