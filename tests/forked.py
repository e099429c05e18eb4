"""Services and commands forked from a process that has imported them already.

A start takes a third of the time. A test of the start itself uses ``python -m``.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from multiprocessing import forkserver
from pathlib import Path

_CONTEXT = multiprocessing.get_context("forkserver")


@cache
def begin() -> None:
    """Start the process that services are forked from; others use it, too."""
    multiprocessing.set_forkserver_preload(["tests.preloaded"])
    forkserver.ensure_running()


class Child:
    """A forked process, with the methods of ``subprocess.Popen`` that tests use.

    Args:
        target: function of a module.
        given: its arguments.
    """

    def __init__(self, target: Callable[..., None], *given: object) -> None:
        begin()
        self._process = _CONTEXT.Process(target=target, args=given)
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
            raise subprocess.TimeoutExpired(self._process.name, timeout or 0)
        return status

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            # the server of forks may have seen its end before this process
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


class Forked(Child):
    """A service.

    Args:
        arguments: of ``docsplit-serve``.
        log: its standard error is appended to this file.
        environment: all its variables.
        folder: to work in.
        module: a package that runs the service.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        log: Path,
        environment: Mapping[str, str],
        folder: Path,
        module: str = "service",
    ) -> None:
        log.touch()
        given = (f"{module}.__main__", list(arguments), None, log, dict(environment), folder)
        super().__init__(_main, *given)


def run(module: str, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the ``main`` of a module like ``python -m``, with this process's environment."""
    with tempfile.TemporaryDirectory() as place:
        output, errors = Path(place, "output"), Path(place, "errors")
        given = (module, list(arguments), output, errors, dict(os.environ), folder)
        status = Child(_main, *given).wait()
        return subprocess.CompletedProcess(
            [module, *arguments], status, output.read_text(), errors.read_text()
        )


def program(code: str, *, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run code like ``python -c``, in a process that has imported the service."""
    return run("tests.forked", code, folder=folder)


def main(arguments: list[str]) -> None:
    """Run the code of ``program``."""
    exec(compile(arguments[0], "<string>", "exec"), {"__name__": "__main__"})


def _main(
    module: str,
    arguments: list[str],
    output: Path | None,
    errors: Path,
    environment: Mapping[str, str],
    folder: Path,
) -> None:
    for path, stream in ((output, sys.stdout), (errors, sys.stderr)):
        if path is not None:
            descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            os.dup2(descriptor, stream.fileno())
            os.close(descriptor)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.exit(import_module(module).main(arguments))
