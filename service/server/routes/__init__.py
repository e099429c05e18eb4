"""The HTTP interface; docs/api.md is its reference."""
