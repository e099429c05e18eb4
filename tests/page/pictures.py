"""Takes the pictures of docs/images from a service with the index of ``make demo``.

The index needs its found links (``POST /indexes/peps/links/find``), its citation head, and its map
(``POST /indexes/peps/map``). The classifier of the picture of labels is made and deleted here.

    python -m tests.page.pictures http://localhost:8080 [VIEW ...]
"""

import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import httpx

from examples.peps.demo import LABELS
from tests.conftest import ROOT, free_port
from tests.page.browser import browsing

VIEWS = {
    "search": ("search?q=Why+does+Python+have+no+multi-line+lambda%3F", ".hits"),
    "compare": ("compare?id=pep-585&other=pep-484", ".pairs"),
    "map": ("map", ".topics"),
    "label": ("label?classifier=kinds", ".labelling h2"),
    "citations": ("neighbourhood?id=pep-585", ".centre .counts:not(:empty)"),
}


@contextmanager
def classifier(url: str) -> Iterator[None]:
    """A classifier with a few trainings; each knows one more document of each label."""
    place = f"{url}/classifiers/kinds"
    for number in range(1, 7):
        documents = [{"id": ids[number - 1], "labels": [label]} for label, ids in LABELS.items()]
        body = {"index": "peps", "documents": documents}
        httpx.post(f"{place}/labels", json=body, timeout=60).raise_for_status()
        # a training needs two documents of each label
        while number > 1 and httpx.post(f"{place}/retrain", timeout=60).status_code != 202:
            time.sleep(0.2)
        while number > 1 and "training" in httpx.get(place, timeout=60).json():
            time.sleep(0.2)
    try:
        yield
    finally:
        httpx.delete(place).raise_for_status()


def main() -> None:
    """Write one picture of each view, or of those that the command names."""
    url = sys.argv[1].rstrip("/")
    wanted = sys.argv[2:] or VIEWS
    with (
        tempfile.TemporaryDirectory() as folder,
        classifier(url) if "label" in wanted else nullcontext(),
        browsing(Path(folder), free_port()) as tab,
    ):
        tab.look(1280, 860)
        for name in wanted:
            view, shown = VIEWS[name]
            tab.open(f"{url}/#/peps/{view}")
            tab.wait(f"document.querySelector('{shown}')")
            if name == "citations":
                tab.click("#predict")
                tab.wait("document.querySelector('.node.predicted')")
                tab.run("scrollTo(0, 0)")
            # lines follow the layout
            tab.run("new Promise((resolve) => setTimeout(resolve, 1500))")
            tab.picture(ROOT / "docs" / "images" / f"page-{name}.png")


if __name__ == "__main__":
    main()
