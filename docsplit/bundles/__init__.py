"""The bundle format, which the export writes and the service reads, and the default bundle."""
