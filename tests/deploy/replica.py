"""A service behind a balancer."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests import forked
from tests.conftest import ROOT, Server, free_port, wait_ready

# longer than HAProxy needs to notice: two checks, one second apart
DRAIN_SECONDS = 3


@dataclass
class Replica:
    """A service on its own port that can be stopped and restarted."""

    folder: Path
    name: str
    flags: tuple[str, ...]
    port: int = field(default_factory=free_port)
    server: Server = field(init=False)

    def start(self) -> None:
        """Start the service; ``wait_ready`` waits for it."""
        command = ["--port", str(self.port), "--threads", "1", "--calibrate", "0"]
        command += ["--drain-seconds", str(DRAIN_SECONDS), *self.flags]
        env = {k: v for k, v in os.environ.items() if not k.startswith("DOCSPLIT_")}
        log = self.folder / f"{self.name}.log"
        process = forked.Forked(command, log, env, ROOT)
        self.server = Server(f"http://127.0.0.1:{self.port}", process, log)

    def end(self, number: int) -> int:
        """Send a signal and wait for the end."""
        self.server.process.send_signal(number)
        return self.server.process.wait(60)

    def restart(self, number: int) -> None:
        """Restart the service like a roll-out."""
        self.end(number)
        self.start()
        wait_ready(self.server)


@contextmanager
def running(*replicas: Replica) -> Iterator[list[int]]:
    """Start all at once, wait until they are ready, kill them afterwards; yields their ports."""
    with ExitStack() as stack:
        for replica in replicas:
            replica.start()
            stack.callback(replica.end, signal.SIGKILL)
        for replica in replicas:
            wait_ready(replica.server)
        yield [replica.port for replica in replicas]
