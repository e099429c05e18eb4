"""Pages of PDFs: their lines, columns, headings, and what repeats."""
