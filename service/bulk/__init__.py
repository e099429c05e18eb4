"""``docsplit-index``: indexes many documents in this process."""
