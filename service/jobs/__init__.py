"""Long work that no request waits for: the table of jobs, and those that run in this process."""
