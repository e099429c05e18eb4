"""The shipped balancer configurations, with replicas on this machine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.conftest import ROOT, free_port

HAPROXY = ROOT / "deploy" / "haproxy" / "haproxy.cfg"
NGINX = ROOT / "deploy" / "nginx" / "nginx.conf"


def find(program: str) -> str | None:
    """The path of a program; Debian keeps administrators' programs out of users' PATH."""
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def haproxy_configuration(port: int, replicas: Sequence[int], metrics: int, inside: int) -> str:
    """The shipped configuration, with these loopback ports in place of its names."""
    text = HAPROXY.read_text(encoding="utf-8")
    servers = "\n".join(f"    server r{at} 127.0.0.1:{at}" for at in replicas)
    for pattern, times, new in (
        (r"^    server-template .*$", 2, servers),
        (r"bind :8080$", 1, f"bind 127.0.0.1:{port}"),
        (r"bind :8405$", 1, f"bind 127.0.0.1:{metrics}"),
        (r"127\.0\.0\.1:8081$", 2, f"127.0.0.1:{inside}"),
        (r"^resolvers docker\n(    .*\n)+", 1, ""),
    ):
        text, changed = re.subn(pattern, new, text, flags=re.MULTILINE)
        assert changed == times, pattern
    return text


def nginx_configuration(port: int, replicas: Sequence[int], folder: Path) -> str:
    """The shipped configuration, with these loopback ports, and all its files in a folder."""
    text = NGINX.read_text(encoding="utf-8")
    for number, at in enumerate(replicas, 1):
        text, changed = re.subn(rf"server docsplit-{number}:8080 ", f"server 127.0.0.1:{at} ", text)
        # once in each group
        assert changed == 3
    # if there are fewer replicas than the file has
    text = re.sub(r"^ +server docsplit-.*\n", "", text, flags=re.MULTILINE)
    text, changed = re.subn(r"listen 8080;", f"listen 127.0.0.1:{port};", text)
    assert changed == 1
    return text.replace("/tmp/nginx", f"{folder}/nginx")


@contextmanager
def haproxy(folder: Path, replicas: Sequence[int]) -> Iterator[str]:
    """Run HAProxy; yields its URL."""
    port = free_port()
    file = folder / "haproxy.cfg"
    file.write_text(haproxy_configuration(port, replicas, free_port(), free_port()))
    with _running([str(find("haproxy")), "-db", "-f", str(file)], folder / "haproxy.log", port):
        yield f"http://127.0.0.1:{port}"


@contextmanager
def nginx(folder: Path, replicas: Sequence[int]) -> Iterator[str]:
    """Run nginx; yields its URL."""
    port = free_port()
    file = folder / "nginx.conf"
    file.write_text(nginx_configuration(port, replicas, folder))
    # nginx's processes must reach the folder of the test
    user = " user root;" if os.getuid() == 0 else ""
    command = [str(find("nginx")), "-p", str(folder), "-c", str(file), "-g", f"daemon off;{user}"]
    with _running(command, folder / "nginx.log", port):
        yield f"http://127.0.0.1:{port}"


@contextmanager
def _running(command: list[str], log: Path, port: int) -> Iterator[None]:
    with log.open("wb") as stream:
        process = subprocess.Popen(command, stdout=stream, stderr=stream)
    try:
        deadline = time.monotonic() + 20
        while True:
            try:
                if httpx.get(f"http://127.0.0.1:{port}/readyz").status_code == 200:
                    break
            except httpx.TransportError:
                pass
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait(10)
