"""How long until the page paints, and how much longer than its request does a search take?

    python -m benchmarks.index.page http://localhost:8080 --index peps

It needs a running service with an index, and Chromium or PySide6 with QtWebEngine. Titles of the
index's documents are the searches. A load begins with an empty cache of the browser. The time of a
search runs from the submission of the form to the frame that shows the results; the time of its
request is the browser's own measurement.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import httpx
import numpy as np
from rich.console import Console
from rich.table import Table

from tests.conftest import free_port
from tests.page.browser import Tab, browsing

# when the first content was painted, and when the view had its data, ms after the load began
PAINTED = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
SHOWN = """new Promise((done) => {
  const there = () => document.querySelector(".seeds li");
  const look = () => (there() ? done(performance.now()) : requestAnimationFrame(look));
  look();
})"""
# ms of a search and of its request
SEARCHED = """(async (text) => {
  performance.clearResourceTimings();
  const box = document.querySelector("#query");
  box.value = text;
  const before = document.querySelector(".hits");
  const began = performance.now();
  document.querySelector("form.search").requestSubmit();
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  for (let found = before; !found || found === before; ) {
    await frame();
    found = document.querySelector(".hits");
  }
  await frame();
  const whole = performance.now() - began;
  const asked = performance.getEntriesByType("resource");
  return [whole, asked.find((one) => one.name.endsWith("/passages")).duration];
})"""


def main() -> None:
    """Load, search and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("url")
    parser.add_argument("--index", default="peps")
    parser.add_argument("--loads", type=int, default=20)
    parser.add_argument("--searches", type=int, default=50)
    given = parser.parse_args()
    url = given.url.rstrip("/")
    listed = httpx.get(f"{url}/indexes/{given.index}/documents?limit={given.searches}").json()
    texts = [one["title"] or one["id"] for one in listed["documents"]]
    with tempfile.TemporaryDirectory() as folder, browsing(Path(folder), free_port()) as tab:
        tab.look()
        loads = [loaded(tab, f"{url}/#/{given.index}/search") for _ in range(given.loads)]
        tab.wait("document.querySelector('#query')")
        # the first search loads parts of the service
        searches = [searched(tab, text) for text in [texts[0], *texts]][1:]
    whole, asked = np.array(searches).T
    painted, shown = np.array(loads).T
    table = Table("", "p50 ms", "p90 ms", "longest ms")
    for title, times in {
        "first paint": painted,
        "view with its data": shown,
        "search to results": whole,
        "its request": asked,
        "beyond its request": whole - asked,
    }.items():
        row = [np.percentile(times, 50), np.percentile(times, 90), times.max()]
        table.add_row(title, *(f"{value:.0f}" for value in row))
    Console().print(table)


def loaded(tab: Tab, url: str) -> tuple[float, float]:
    """The times of one load without a cache, ms."""
    tab("Network.setCacheDisabled", cacheDisabled=True)
    tab.open(url)
    shown = tab.run(SHOWN)
    return tab.wait(PAINTED), shown


def searched(tab: Tab, text: str) -> tuple[float, float]:
    """The times of one search and of its request, ms."""
    whole, asked = tab.run(f"{SEARCHED}({json.dumps(text)})")
    return whole, asked


if __name__ == "__main__":
    main()
