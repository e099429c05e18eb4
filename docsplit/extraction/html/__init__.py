"""The text of HTML: what its nodes are, its tables and its lists."""
