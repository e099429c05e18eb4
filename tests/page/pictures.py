"""Takes the pictures of docs/images from a service with the index of ``make demo``.

The index needs its found links (``POST /indexes/peps/links/find``), its citation head, and its map
(``POST /indexes/peps/map``).

    python -m tests.page.pictures http://localhost:8080
"""

import sys
import tempfile
from pathlib import Path

from tests.conftest import ROOT, free_port
from tests.page.browser import browsing

VIEWS = {
    "search": ("search?q=Why+does+Python+have+no+multi-line+lambda%3F", ".hits"),
    "compare": ("compare?id=pep-585&other=pep-484", ".pairs"),
    "map": ("map", ".topics"),
    "citations": ("neighbourhood?id=pep-585", ".centre .counts:not(:empty)"),
}


def main() -> None:
    """Write one picture of each view."""
    with tempfile.TemporaryDirectory() as folder, browsing(Path(folder), free_port()) as tab:
        tab.look(1280, 860)
        for name, (view, shown) in VIEWS.items():
            tab.open(f"{sys.argv[1].rstrip('/')}/#/peps/{view}")
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
