"""``make demo`` with the index "peps": citations, similarity, a few labels.

It starts the service on a free port with the settings of ``docsplit-serve`` and uses HTTP.
"""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from typing import Any

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
        headers = {"content-type": "application/json", "x-request-timeout": "600"}
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
    """Run all three parts."""
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
    made = client("PUT", "/classifiers/pep-type", {"inputs": inputs, "labels": labels})
    print(f"\n{len(labels)} labels: cross-validated accuracy {made['accuracy']:.2f}")
    texts = [client("GET", documents + name)["text"] for name in UNSEEN]
    answers = client("POST", "/classify", {"inputs": texts, "classifier": "pep-type", "top_k": 1})
    for name, [best] in zip(UNSEEN, answers, strict=True):
        print(f"  {name:9}  {best['label']} ({best['score']:.2f})")


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
