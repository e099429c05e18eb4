"""Uploaded files: their place on disk, the jobs that index them, and the table of all jobs."""
