"""API keys: the file that names them, what each may do and how fast, and the command for both."""
