"""``docsplit-index``: many documents into an index, in this process."""
