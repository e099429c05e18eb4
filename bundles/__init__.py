"""The bundle format, which export writes and service reads, and where the default bundle is."""
