#!/bin/sh
# A gauge by `set_function` reads 0 in prometheus-client's mode for several processes.
#
# With prometheus-client 0.26.0. Guess: `Gauge.set_function(f)` works or is refused, as the mode's documents list what it
# cannot do (custom collectors, Info, Enum) without this. Seen: the process itself reads the value of the function, tests of
# one process pass, and a scrape of all processes has 0 for it, since only stored numbers are shared. A queue that looks
# empty on every panel is the result. A metric with labels that nothing has set yet is missing, as everywhere.
# Joined here: metrics and workers.
# Fails if that changes.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet prometheus-client==0.26.0
cd "$folder"
"$folder/venv/bin/python" - <<'PY'
import importlib.metadata
import os
import subprocess
import sys

EXPECTED = {"in the process": "7.0", "scraped": ["depth 0.0", "stored 5.0"]}
os.mkdir("shared")
environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": "shared"}
WORKER = """
import prometheus_client
depth = prometheus_client.Gauge("depth", "d", multiprocess_mode="sum")
depth.set_function(lambda: 7)
prometheus_client.Gauge("stored", "d", multiprocess_mode="sum").set(5)
print(prometheus_client.REGISTRY.get_sample_value("depth"))
"""
SCRAPE = """
import prometheus_client
from prometheus_client import multiprocess
registry = prometheus_client.CollectorRegistry()
multiprocess.MultiProcessCollector(registry)
print(prometheus_client.generate_latest(registry).decode())
"""


def run(program: str) -> str:
    asked = [sys.executable, "-c", program]
    return subprocess.run(asked, env=environment, capture_output=True, text=True, check=True).stdout


print("prometheus-client", importlib.metadata.version("prometheus-client"))
inside = run(WORKER).strip()
lines = sorted(line for line in run(SCRAPE).splitlines() if line and line[0] != "#")
seen = {"in the process": inside, "scraped": lines}
print("seen:", seen)
assert seen == EXPECTED, f"it changed, the finding is out of date: {EXPECTED}"
PY
