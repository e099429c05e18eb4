#!/bin/sh
# LanceDB's upsert inserts a new id twice if the batch has it twice, and refuses the same batch if the id is stored.
#
# With lancedb 0.40.0, `merge_insert("id").when_matched_update_all().when_not_matched_insert_all()`.
# Guess: two rows of one id in a batch are an error, or the last one counts, whether the id is stored or new.
# Seen: of a stored id they are refused ("Ambiguous merge inserts"); of a new id both are inserted, and the next
# upsert of that id updates both. A caller who tests the error with stored ids believes that it is safe.
# So make the ids of a batch distinct before the upsert.
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

EXPECTED = {"stored": "refused", "new": [1, 2], "after the next upsert": [3, 3]}
SCHEMA = pa.schema({"id": pa.string(), "n": pa.int64()})


async def main() -> dict[str, object]:
    database = await lancedb.connect_async("data")
    table = await database.create_table("t", pa.table({"id": ["a"], "n": [0]}, schema=SCHEMA))

    async def upsert(ids: list[str], numbers: list[int]) -> None:
        merge = table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        await merge.execute(pa.table({"id": ids, "n": numbers}, schema=SCHEMA))

    async def numbers(one: str) -> list[int]:
        return sorted((await table.query().where(f"id = '{one}'").to_arrow())["n"].to_pylist())

    try:
        await upsert(["a", "a"], [1, 2])
        stored = "taken"
    except (RuntimeError, ValueError) as error:
        stored = "refused" if "Ambiguous" in str(error) else str(error)
    await upsert(["b", "b"], [1, 2])
    new = await numbers("b")
    await upsert(["b"], [3])
    return {"stored": stored, "new": new, "after the next upsert": await numbers("b")}


seen = asyncio.run(main())
print("lancedb", lancedb.__version__)
print("seen:", seen)
assert seen == EXPECTED, f"it changed, the finding is out of date: {EXPECTED}"
PY
