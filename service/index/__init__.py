"""Indexes of documents: stored, filtered and searched in LanceDB."""

import os

from docsplit.engines.choice import detect
from service.index.storage.postponed import postpone

# LanceDB's Rust library writes plain lines to standard error, which would break a log of JSON
# lines. It reads this variable once, when it is imported. Its errors also arrive as exceptions.
os.environ.setdefault("LANCEDB_LOG", "off")

# By default it searches with two threads fewer than there are cores, so on two cores with one.
os.environ.setdefault("LANCE_CPU_THREADS", str(detect().cores))

# LanceDB imports this client of REST catalogues for a few types. The rest of it takes a third of
# the time of the import, and 14 MB.
postpone("lance_namespace_urllib3_client")
