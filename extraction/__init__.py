"""Text, pages, headings and the like out of files such as PDF, Word, HTML and mail."""
