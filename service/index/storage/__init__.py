"""Where indexes are stored: a folder or a bucket, and LanceDB's tables in it."""
