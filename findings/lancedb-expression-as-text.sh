#!/bin/sh
# LanceDB's expressions hold a text apart from the condition, but their text form does not.
#
# With lancedb 0.40.0, of rows whose ids have two apostrophes in a row, a query with
# `col("id").eq(lit(id))` finds exactly its own. `Expr.to_sql()` of the same expression leaves the two
# apostrophes as they are, and SQL reads them as one: it finds the row with one apostrophe.
# `AsyncTable.update(where=Expr)` renders the expression by `to_sql()`, so it changes that other row,
# while `delete(Expr)` and `query().where(Expr)` hand the expression over and are right.
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
from lancedb.expr import col, lit

ONE, TWO = "O'Neil", "O''Neil"


async def main() -> None:
    database = await lancedb.connect_async("data")
    table = await database.create_table("t", [{"id": ONE, "n": 0}, {"id": TWO, "n": 0}])
    meant = col("id").eq(lit(TWO))
    by_expression = (await table.query().where(meant).to_arrow())["id"].to_pylist()
    by_text = (await table.query().where(meant.to_sql()).to_arrow())["id"].to_pylist()
    await table.update({"n": 1}, where=meant)
    changed = (await table.query().where("n = 1").to_arrow())["id"].to_pylist()
    await table.delete(meant)
    left = (await table.query().to_arrow())["id"].to_pylist()
    print("lancedb", lancedb.__version__, "looked for", TWO)
    print("query by expression:", by_expression)
    print("query by its to_sql():", by_text)
    print("update by expression changed:", changed)
    print("delete by expression left:", left)
    assert by_expression == [TWO] and left == [ONE]
    assert by_text == [ONE] and changed == [ONE], "it changed: the finding is out of date"


asyncio.run(main())
PY
