"""The HTTP interface; docs/reference/api.md is its reference."""
