"""The shipped cache for files of a bucket, before a store on this machine."""

from __future__ import annotations

import os
import re
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.conftest import ROOT, free_port, wait_until
from tests.deploy.balancers import find

CONFIGURATION = ROOT / "deploy" / "helm" / "docsplit" / "bucket-cache.conf"


def configuration(port: int, store: int, folder: Path) -> str:
    """The shipped file, with a store on this machine and all files in a folder."""
    text = CONFIGURATION.read_text(encoding="utf-8")
    for old, times, new in (
        # earlier versions of nginx do not know them
        (r" +zone store 256k;\n", 1, ""),
        (r"server s3[.].*;", 1, f"server 127.0.0.1:{store};"),
        ("https://store", 2, "http://store"),
        ("listen 127[.]0[.]0[.]1:3128;", 1, f"listen 127.0.0.1:{port};"),
        ("/tmp/", 6, f"{folder}/"),
        ("proxy_cache_path /cache ", 1, f"proxy_cache_path {folder}/cache "),
        (
            "access_log off;",
            1,
            f"log_format plain '$request_method $request_uri $upstream_cache_status';"
            f" access_log {folder}/requests plain;",
        ),
    ):
        text, changed = re.subn(old, new, text)
        assert changed == times, old
    return text


@contextmanager
def caching(folder: Path, store: int) -> Iterator[str]:
    """Run the cache with its files in a folder, before a store; yields its URL."""
    port = free_port()
    file = folder / "nginx.conf"
    file.write_text(configuration(port, store, folder))
    user = " user root;" if os.getuid() == 0 else ""
    command = [str(find("nginx")), "-p", str(folder), "-c", str(file), "-g", f"daemon off;{user}"]
    with (folder / "nginx.log").open("wb") as log:
        running = subprocess.Popen(command, stdout=log, stderr=log)

    def listens() -> bool:
        assert running.poll() is None, (folder / "nginx.log").read_text()
        with socket.socket() as one:
            return one.connect_ex(("127.0.0.1", port)) == 0

    try:
        wait_until(listens, 20)
        yield f"http://127.0.0.1:{port}"
    finally:
        running.terminate()
        running.wait(10)
