#!/bin/sh
# NumPy's matrix product gives one row another result by its place among the others.
#
# With numpy 2.4.6 and its OpenBLAS. Guess: `(rows @ query)[i]` is the product of row i with the query, and depends on
# nothing else. Seen: the same row put in each place of a matrix of 5 to 39 rows has up to three values, which differ in the
# last digits. So scores of a document differ between two answers, ties break, and a cache of
# answers disagrees with a new one. `numpy.einsum` gives every row the same value anywhere.
# Fails if that changes (on processors whose kernels round all rows alike it does not hold).
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" - <<'PY'
import numpy as np

EXPECTED = {"matrix product": "several values", "einsum": "one value"}
draw = np.random.default_rng(0)


def values(product, rows: int) -> int:
    """How many values the product of one row has, by its place."""
    matrix = draw.normal(size=(rows, 384)).astype("f")
    query, row = draw.normal(size=(2, 384)).astype("f")
    found = set()
    for place in range(rows):
        here = matrix.copy()
        here[place] = row
        found.add(float(product(here, query)[place]))
    return len(found)


products = {
    "matrix product": lambda matrix, query: matrix @ query,
    "einsum": lambda matrix, query: np.einsum("ij,j->i", matrix, query),
}
counts = {name: [values(product, rows) for rows in range(2, 40)] for name, product in products.items()}
print("numpy", np.__version__, "values of one row, in 2 to 39 rows:", counts)
seen = {name: "several values" if max(count) > 1 else "one value" for name, count in counts.items()}
print("seen:", seen)
assert seen == EXPECTED, f"it changed, the finding is out of date: {EXPECTED}"
PY
