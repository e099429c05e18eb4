"""One module for each kind of file; the confined process imports them, nothing else does."""
