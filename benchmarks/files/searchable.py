"""How soon the pages of a long PDF are found after its upload.

    python -m benchmarks.files.searchable --rounds 3
    python -m benchmarks.files.searchable --rounds 10 --cached

The service embeds the text of a PDF of some 300 pages by ``/embed``, and then takes the PDF
as an upload. The difference is the time for reading, indexing and asking about the job. A passage
search for words of a page must name that page. Nothing is cached, unless ``--cached`` lets all
vectors come from the cache, which leaves the time of everything else. The seconds of processor
time are those of the service and of the processes that read files; other work does not change them
much.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time

import httpx

from benchmarks.files.pdf import pdf
from benchmarks.files.source import Source, sources
from benchmarks.rig.processes import processor_seconds
from benchmarks.rig.server import started
from docsplit.extraction.reading import Reader
from tests.extraction.conftest import content_of, outcomes

# seconds between questions about the job; each takes time from the engine
_INTERVAL = 0.25


def main() -> None:
    """Start a service, embed, upload, search."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cached", action="store_true", help="take vectors from the cache")
    given = parser.parse_args()
    blocks = [block for source in sources(75) for block in source.blocks]
    content, pages = pdf(Source("All", "2026-01-01", blocks))
    with Reader() as reader:
        text = content_of(outcomes(reader, ".pdf", content)).text
    print(f"{len(pages)} pages, {len(text):,} characters")
    rows = []
    flags = ["--request-timeout=600", "--max-document-tokens=1000000"]
    flags += [] if given.cached else ["--cache-bytes=0"]
    with (
        tempfile.TemporaryDirectory() as work,
        started(f"--index-path={work}/index", *flags) as service,
        httpx.Client(base_url=service.url, timeout=600) as client,
    ):
        if given.cached:
            client.post("/embed", json={"inputs": [text]}).raise_for_status()
        for number in range(given.rounds):
            began = time.monotonic()
            client.post("/embed", json={"inputs": [text]}).raise_for_status()
            embedded = time.monotonic() - began
            name = f"round{number}"
            client.put(f"/indexes/{name}", json={}).raise_for_status()
            began = time.monotonic()
            files = [("files", ("all.pdf", content))]
            before = processor_seconds(service.pid)
            answer = client.post(f"/indexes/{name}/files", files=files).raise_for_status()
            while (job := client.get(answer.headers["location"]).json())["ended"] is None:
                time.sleep(_INTERVAL)
            whole = time.monotonic() - began
            spent = processor_seconds(service.pid) - before
            assert job["documents"]["written"] == 1, job
            rows.append(whole - embedded)
            right = sum(_page(client, name, pages[n]) == n + 1 for n in range(9, len(pages), 30))
            asked = len(range(9, len(pages), 30))
            print(
                f"embedding {embedded:.2f} s, upload until searchable {whole:.2f} s, beyond the "
                f"embedding {rows[-1]:.2f} s, processor {spent:.2f} s; "
                f"{right} of {asked} pages found by their words"
            )
    print(f"median beyond the embedding: {statistics.median(rows):.2f} s")


def _page(client: httpx.Client, index: str, page: str) -> int | None:
    body = {"index": index, "text": " ".join(page.split()[100:130]), "passages": 1}
    found = client.post("/passages", json=body).raise_for_status().json()
    held: int | None = found[0]["passages"][0]["page"] if found else None
    return held


if __name__ == "__main__":
    main()
