"""``make demo``: citations, similarity and a few labels in the index "peps", and uploaded files.

It starts the service on a free port with the settings of ``docsplit-serve`` and uses HTTP.
"""

import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from typing import Any

from benchmarks.files.making import KINDS, made
from benchmarks.files.source import sources

# the Type header of these PEPs
LABELS = {
    "Standards Track": [
        "pep-484",
        "pep-526",
        "pep-634",
        "pep-380",
        "pep-492",
        "pep-498",
        "pep-572",
    ],
    "Informational": ["pep-373", "pep-375", "pep-392", "pep-398", "pep-429", "pep-478", "pep-494"],
    "Process": ["pep-1", "pep-2", "pep-4", "pep-11", "pep-12", "pep-13"],
}
UNSEEN = ["pep-3107", "pep-537", "pep-387"]
PASTED = """I would like to write the types of parameters and results of functions next to their
names, and have a separate program find calls that pass the wrong thing, at no cost at run time."""


class Client:
    """JSON over HTTP with the standard library."""

    def __init__(self, url: str) -> None:
        self._url = url

    def __call__(self, method: str, path: str, body: Any = None) -> Any:
        """The answer's body."""
        data = None if body is None else json.dumps(body).encode()
        return self._send(method, path, data, "application/json")

    def upload(self, index: str, files: dict[str, bytes]) -> Any:
        """Upload files, and return the job when it has ended."""
        mark = uuid.uuid4().hex
        body = b""
        for name, content in files.items():
            head = f'--{mark}\r\ncontent-disposition: form-data; name="files"; filename="{name}"'
            body += head.encode() + b"\r\n\r\n" + content + b"\r\n"
        body += f"--{mark}--\r\n".encode()
        kind = f"multipart/form-data; boundary={mark}"
        job = self._send("POST", f"/indexes/{index}/files", body, kind)
        while job["ended"] is None:
            time.sleep(0.5)
            job = self("GET", f"/jobs/{job['id']}")
        return job

    def _send(self, method: str, path: str, data: bytes | None, kind: str) -> Any:
        headers = {"content-type": kind, "x-request-timeout": "600"}
        request = urllib.request.Request(self._url + path, data, headers, method=method)
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)


def show(client: Client, title: str, **query: Any) -> None:
    """Print the hits of a search."""
    print(f"\n{title}")
    linked = (
        client("GET", f"/indexes/peps/documents/{query['id']}")["links"] if "id" in query else []
    )
    for hit in client("POST", "/similar", {"index": "peps", **query}):
        known = "linked" if hit["id"] in linked and "direction" in query else ""
        print(f"  {hit['score']:.3f}  {hit['id']:9}  {hit['title'][:60]:60}  {known}")


def demo(client: Client) -> None:
    """Run all parts."""
    report = client("POST", "/indexes/peps/citation")
    print(
        f"citation head: {report['links']} links, {report['training_seconds']:.1f} s; on held-out "
        f"PEPs its MRR is {report['mrr']:.3f}, that of the hybrid search "
        f"{report['hybrid_mrr']:.3f}"
    )
    show(client, "PEP 484 (Type Hints) cites", id="pep-484", mode="citation", direction="cites")
    show(client, "A pasted text resembles", text=PASTED, mode="hybrid", top_k=5)
    documents = "/indexes/peps/documents/"
    inputs = [client("GET", documents + i)["text"] for ids in LABELS.values() for i in ids]
    labels = [label for label, ids in LABELS.items() for _ in ids]
    trained = client("PUT", "/classifiers/pep-type", {"inputs": inputs, "labels": labels})
    print(f"\n{len(labels)} labels: cross-validated accuracy {trained['accuracy']:.2f}")
    texts = [client("GET", documents + name)["text"] for name in UNSEEN]
    answers = client("POST", "/classify", {"inputs": texts, "classifier": "pep-type", "top_k": 1})
    for name, [best] in zip(UNSEEN, answers, strict=True):
        print(f"  {name:9}  {best['label']} ({best['score']:.2f})")
    show_files(client)


def show_files(client: Client) -> None:
    """Upload a PEP as a file of each kind, and print where passages are."""
    client("PUT", "/indexes/pep-files", {})
    job = client.upload("pep-files", dict(files()))
    print(f"\n{job['files']['done']} files of as many kinds; passages about default arguments")
    query = {"index": "pep-files", "text": "default arguments", "top_k": 5, "passages": 1}
    for found in client("POST", "/passages", query):
        [best] = found["passages"]
        page = f"page {best['page']}" if best["page"] else ""
        heading = (best["heading"] or "")[:40]
        print(f"  {best['score']:.3f}  {found['id']:50}  {page:8}  {heading}")


def files() -> Iterator[tuple[str, bytes]]:
    """A file of each kind that the installed libraries can write, made from a PEP."""
    for kind, source in zip(KINDS, sources(len(KINDS)), strict=True):
        name = re.sub("[^a-z0-9]+", "-", source.title.lower()).strip("-")
        try:
            yield name + kind, made(kind, source).content
        except ImportError as error:
            print(f"no {kind} file: it needs {error.name}")


def main() -> None:
    """Start the service, show the results and stop."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    env = os.environ | {"DOCSPLIT_PORT": str(port), "DOCSPLIT_LOG_LEVEL": "error"}
    server = subprocess.Popen([sys.executable, "-m", "service", "--drain-seconds", "0"], env=env)
    url = f"http://127.0.0.1:{port}"
    try:
        while True:
            try:
                urllib.request.urlopen(f"{url}/readyz").close()
                break
            except (urllib.error.URLError, ConnectionError):
                if server.poll() is not None:
                    sys.exit("the service did not start")
                time.sleep(0.1)
        demo(Client(url))
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
