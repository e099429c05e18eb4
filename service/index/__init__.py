"""Indexes of documents: stored, filtered and searched in LanceDB."""

import os

# LanceDB's Rust library writes plain lines to standard error, which would break a log of JSON
# lines. It reads this variable once, when it is imported. Its errors also arrive as exceptions.
os.environ.setdefault("LANCEDB_LOG", "off")
