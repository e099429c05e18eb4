"""The parts of a stored document: columns, checksums and versions."""
