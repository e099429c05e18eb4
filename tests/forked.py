"""Services forked from a process that has imported them already: a start takes a third of the time.

A test of the start itself uses ``python -m service``.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from multiprocessing import forkserver
from pathlib import Path

_CONTEXT = multiprocessing.get_context("forkserver")
# what a service imports until it is ready, and the reader of damaged files with LanceDB
_IMPORTED = ["service.server.serving", "service.server.lifecycle", "service.integrity.reading"]


@cache
def begin() -> None:
    """Start the process that services are forked from; others use it, too."""
    multiprocessing.set_forkserver_preload(_IMPORTED)
    forkserver.ensure_running()


class Forked:
    """A service, with the methods of ``subprocess.Popen`` that tests use.

    Args:
        arguments: of ``docsplit-serve``.
        log: gets its standard error.
        environment: all its variables.
        folder: to work in.
    """

    def __init__(
        self, arguments: Sequence[str], log: Path, environment: Mapping[str, str], folder: Path
    ) -> None:
        begin()
        log.write_bytes(b"")
        given = (list(arguments), log, dict(environment), folder)
        self._process = _CONTEXT.Process(target=_serve, args=given)
        self._process.start()
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit status, or minus the signal that ended it; None while it runs."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """The same."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Return its exit status when it has ended."""
        self._process.join(timeout)
        if (status := self._process.exitcode) is None:
            raise subprocess.TimeoutExpired("service", timeout or 0)
        return status

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


def _serve(arguments: list[str], log: Path, environment: dict[str, str], folder: Path) -> None:
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND)
    os.dup2(descriptor, sys.stderr.fileno())
    os.close(descriptor)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    from service.__main__ import main

    sys.exit(main(arguments))
