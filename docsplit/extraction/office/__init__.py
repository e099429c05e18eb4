"""Parts of office files: the archive of XML, and the numbers of lists."""
