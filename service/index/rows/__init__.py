"""What one stored document is: its columns, checksums and versions."""
