#!/bin/sh
# pyarrow's filters `in [x]` and `= x`, and `not in [x]` and `!= x`, of a Parquet file select different rows.
#
# With pyarrow 26.0.1, `read_table(filters=...)`. Guess: a list of one value is the same as that value. Seen: `!=` leaves out
# rows without a value and `not in` keeps them. `= 0.0` finds 0.0 and -0.0, `in [0.0]` neither where a row group holds one of
# them, because the statistics of the file write the least zero as -0.0. `in [nan]` finds NaN and `= nan` does not.
# A program that builds a filter from a list of choices gives another result with one choice.
# Joined here: a reader of tables, its statistics and its filters.
# Fails if that changes.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet pyarrow==26.0.1
cd "$folder"
"$folder/venv/bin/python" - <<'PY'
import pyarrow as pa
import pyarrow.parquet as pq

nan = float("nan")
EXPECTED = {
    "s != a": [2],
    "s not in [a]": [1, 2],
    "x = 0.0": [3, 4],
    "x in [0.0]": [],
    "x = nan": [],
    "x in [nan]": [1],
}
table = pa.table({"row": range(5), "s": ["a", None, "b", "a", "a"], "x": [1.0, nan, None, -0.0, 0.0]})
pq.write_table(table, "t.parquet", row_group_size=1)
filters = {
    "s != a": ("s", "!=", "a"),
    "s not in [a]": ("s", "not in", ["a"]),
    "x = 0.0": ("x", "==", 0.0),
    "x in [0.0]": ("x", "in", [0.0]),
    "x = nan": ("x", "==", nan),
    "x in [nan]": ("x", "in", [nan]),
}
print("pyarrow", pa.__version__)
seen = {
    name: pq.read_table("t.parquet", filters=[given])["row"].to_pylist()
    for name, given in filters.items()
}
print("seen:", seen)
assert seen == EXPECTED, f"it changed, the finding is out of date: {EXPECTED}"
PY
