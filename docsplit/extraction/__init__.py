"""Text, pages and headings out of files such as PDF, Word, HTML and e-mail."""
