"""Files of every kind that ``docsplit-index`` reads: made from the PEPs, and read."""
