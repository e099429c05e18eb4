"""Bulk embedding by lines: one JSON text a line in, one JSON result a line out."""
