"""The HTTP interface; docs/reference/api is its reference."""
