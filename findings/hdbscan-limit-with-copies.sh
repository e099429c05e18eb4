#!/bin/sh
# scikit-learn's HDBSCAN with a limit of size calls a large group of copies noise.
#
# With scikit-learn 1.9.1. Guess: `max_cluster_size=40` splits a dense group of 80 points into several, or leaves it whole. Seen: 80
# equal points are all noise (-1), although nothing is denser; the same points a thousandth apart get clusters. Equal points
# have no distance at which they fall apart, so the only cluster that holds them is too large. Forms, error pages and
# templates are such points: those that a map should show first are those that it calls without a topic.
# Fails if that changes.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet scikit-learn==1.9.1
cd "$folder"
"$folder/venv/bin/python" - <<'PY'
import numpy as np
import sklearn
from sklearn.cluster import HDBSCAN

EXPECTED = {"copies": "noise", "near copies": "clusters", "copies without a limit": "clusters"}
draw = np.random.default_rng(0)
others = np.vstack([draw.normal(size=(60, 2)) * 0.1, draw.normal(size=(60, 2)) * 0.1 + 5])
copies = np.full((80, 2), 10.0)
near = copies + draw.normal(size=(80, 2)) * 1e-3


def of(points, limit) -> str:
    given = HDBSCAN(min_cluster_size=5, max_cluster_size=limit, copy=True)
    labels = given.fit(np.vstack([others, points])).labels_[len(others) :]
    return "noise" if (labels == -1).all() else "clusters"


print("scikit-learn", sklearn.__version__)
seen = {"copies": of(copies, 40), "near copies": of(near, 40), "copies without a limit": of(copies, None)}
print("seen:", seen)
assert seen == EXPECTED, f"it changed, the finding is out of date: {EXPECTED}"
PY
