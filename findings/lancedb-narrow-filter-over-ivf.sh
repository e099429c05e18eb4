#!/bin/sh
# LanceDB's search with a narrow filter returns fewer rows than pass the filter, without a word.
#
# With lancedb 0.40.0, an IVF index of 100 parts over 20,000 vectors, and a filter that 10 rows pass; `limit(10)`.
# Guess: a filter is applied first, so the ten rows come back, whatever their distance.
# Seen: only rows in the 20 nearest parts are found, about two of the ten here. `bypass_vector_index()` finds all, and so
# does `maximum_nprobes(0)`, which reads every part. The setting that the documents call "pre-filtering" is on throughout.
# Fails if that changes.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet lancedb==0.40.0
cd "$folder"
"$folder/venv/bin/python" - <<'PY'
import asyncio

import lancedb
import numpy as np
import pyarrow as pa
from lancedb.index import IvfFlat

EXPECTED = {"default finds less than half": True, "maximum_nprobes(0)": 10, "without the index": 10}


async def main() -> dict[str, object]:
    vectors = np.random.default_rng(0).normal(size=(20_000, 16)).astype("f")
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), 16)
    rare = [int(row % 2_000 == 5) for row in range(20_000)]
    database = await lancedb.connect_async("data")
    table = await database.create_table("t", pa.table({"rare": rare, "v": column}))
    await table.create_index("v", config=IvfFlat(num_partitions=100))

    def search(number=0):
        return table.query().nearest_to(vectors[number]).column("v").where("rare = 1").limit(10)

    # the parts of the index are drawn anew each time
    found = [(await search(number).to_arrow()).num_rows for number in range(20)]
    print("found by default:", found, "of 10 each")
    return {
        "default finds less than half": sum(found) < 5 * len(found),
        "maximum_nprobes(0)": (await search().maximum_nprobes(0).to_arrow()).num_rows,
        "without the index": (await search().bypass_vector_index().to_arrow()).num_rows,
    }


print("lancedb", lancedb.__version__)
seen = asyncio.run(main())
print("seen:", seen)
assert seen == EXPECTED, f"it changed, the finding is out of date: {EXPECTED}"
PY
