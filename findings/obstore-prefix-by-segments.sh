#!/bin/sh
# obstore's `list(prefix=...)` does not list by a prefix of the key.
#
# With obstore 0.12.1. Guess: `prefix="log"` lists `log-1` and `log/2`, as S3's, Google's and Azure's own interfaces do. Seen: the
# prefix must end where a segment of the path ends, so `log-1` and `log.json` are missing, and a name that is itself the
# prefix is not listed either. A clean-up of `run-2026` or a count by `part-` finds nothing and reports success.
# It is the rule of the Rust library object_store below; whoever comes from boto3 does not expect it.
# Fails if that changes.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet obstore==0.12.1
cd "$folder"
"$folder/venv/bin/python" - <<'PY'
import obstore
from obstore.store import MemoryStore

EXPECTED = {"log": ["log/2"], "log-": [], "log/": ["log/2"], "lo": [], "": ["log", "log-1", "log.json", "log/2"]}
store = MemoryStore()
for name in ("log-1", "log/2", "log.json", "log"):
    obstore.put(store, name, b"x")
print("obstore", obstore.__version__)
seen = {
    prefix: sorted(found["path"] for found in obstore.list(store, prefix=prefix or None).collect())
    for prefix in EXPECTED
}
print("seen:", seen)
assert seen == EXPECTED, f"it changed, the finding is out of date: {EXPECTED}"
PY
