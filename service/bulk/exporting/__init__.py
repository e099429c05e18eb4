"""``docsplit-index export``: an index as Parquet or Arrow files."""
