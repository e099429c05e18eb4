#!/bin/sh
# LanceDB's simultaneous upserts of one new id insert it several times, without an error.
#
# With lancedb 0.40.0, four `merge_insert` of the same new id at once, each by a connection of its own.
# Guess: the commits that come later conflict, are tried again, and find the row; one row stays.
# Seen: four rows. With the mark `lance-schema:unenforced-primary-key` on the field's metadata one row stays, as
# guessed. The name of the mark says that nothing enforces it, but conflicts are found by it.
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
import pyarrow as pa

EXPECTED = {"without the mark": True, "with the mark": 1}
MARK = {"lance-schema:unenforced-primary-key": "true"}


async def rows(name: str, mark: dict[str, str] | None) -> int:
    schema = pa.schema([pa.field("id", pa.string(), False, metadata=mark), pa.field("n", pa.int64())])
    database = await lancedb.connect_async("data")
    await database.create_table(name, schema=schema)

    async def upsert(n: int) -> None:
        table = await (await lancedb.connect_async("data")).open_table(name)
        merge = table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        await merge.execute(pa.table({"id": ["x"], "n": [n]}, schema=schema))

    await asyncio.gather(*map(upsert, range(4)))
    return await (await database.open_table(name)).count_rows()


async def main() -> dict[str, object]:
    # how many of the four race differs; once in five turns is enough
    without = [await rows(f"plain{turn}", None) for turn in range(5)]
    marked = [await rows(f"marked{turn}", MARK) for turn in range(5)]
    print("rows without the mark", without, "with it", marked)
    return {"without the mark": max(without) > 1, "with the mark": max(marked)}


print("lancedb", lancedb.__version__)
seen = asyncio.run(main())
print("seen:", seen)
assert seen == EXPECTED, f"it changed, the finding is out of date: {EXPECTED}"
PY
