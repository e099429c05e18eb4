#!/bin/sh
# A percentile bootstrap calls a gain sure when only four of 2,000 paired results changed.
#
# With scipy 1.17.1. Retrieval papers compare two systems by the interval of the mean of paired differences. Guess: four
# changed queries of 2,000 are far too few. Seen: the 95 % interval is above 0 as soon as four changed in one direction, for
# any number of queries (the chance to draw none of four is e^-4 = .018); BCa already says so for three. A sign test of four gives
# p = .125. So count the changed items beside the interval, and do not trust it below six.
# Fails if that changes.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet scipy==1.17.1 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" - <<'PY'
import numpy as np
import scipy
from scipy.stats import binomtest, bootstrap

# changed of 2,000: lower end of the interval above 0, by percentile and by BCa
EXPECTED = {2: (False, False), 3: (False, True), 4: (True, True), 5: (True, True)}
seen = {}
for changed in EXPECTED:
    differences = np.zeros(2_000)
    differences[:changed] = 1
    lows = {}
    for method in ("percentile", "BCa"):
        found = bootstrap(
            (differences,), np.mean, n_resamples=2_999, batch=500, method=method, rng=np.random.default_rng(0)
        )
        lows[method] = float(found.confidence_interval.low)
    print(changed, "changed:", lows, "sign test: p =", binomtest(changed, changed).pvalue)
    seen[changed] = tuple(low > 0 for low in lows.values())
print("scipy", scipy.__version__)
print("seen:", seen)
assert seen == EXPECTED, f"it changed, the finding is out of date: {EXPECTED}"
PY
