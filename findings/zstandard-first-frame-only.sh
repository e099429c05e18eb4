#!/bin/sh
# zstandard.decompress returns only the first frame of a file and drops the rest; its own streams and pyarrow read all.
#
# With zstandard 0.25.0. A file of several frames is valid: `cat a.zst b.zst`, parallel compressors and appending writers make
# such. Guess: all ways to read give all bytes, or an error. Seen: `decompress` ends after the first frame without a word,
# `decompressobj` keeps the rest in `unused_data`, while `stream_reader` and `open` read on. So a program that works on its own
# files reads a part of those of others.
# Joined here: readers of compressed documents.
# Fails if that changes.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet zstandard==0.25.0 pyarrow==26.0.1
cd "$folder"
"$folder/venv/bin/python" - <<'PY'
import io
from pathlib import Path

import pyarrow
import zstandard

EXPECTED = {
    "decompress": b"one",
    "decompressobj": b"one",
    "stream_reader": b"one two",
    "open": b"one two",
    "pyarrow": b"one two",
}
content = zstandard.compress(b"one") + zstandard.compress(b" two")
Path("two.zst").write_bytes(content)
reader = zstandard.ZstdDecompressor()
print("zstandard", zstandard.__version__, "pyarrow", pyarrow.__version__)
with zstandard.open("two.zst", "rb") as stream:
    opened = stream.read()
seen = {
    "decompress": zstandard.decompress(content),
    "decompressobj": reader.decompressobj().decompress(content),
    "stream_reader": reader.stream_reader(io.BytesIO(content)).read(),
    "open": opened,
    "pyarrow": pyarrow.CompressedInputStream(pyarrow.BufferReader(content), "zstd").read(),
}
print("seen:", seen)
assert seen == EXPECTED, f"it changed, the finding is out of date: {EXPECTED}"
PY
