"""Runs readers in confined processes, one file after the other."""

from __future__ import annotations

import json
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO

from docsplit.extraction.content import ABSENT, FREE, Limits, StartError, UnreadableError
from docsplit.extraction.kinds import ARCHIVES

log = logging.getLogger("docsplit.extraction")

# of an answer in memory; a longer one goes to a file without a name
_SPOOLED = 1 << 23
_CHUNK = 1 << 16
_START_SECONDS = 60.0
# seconds that may pass for each of processor time; others go before a child that recognises
_PATIENCE, _LONG_PATIENCE = 2, 10
# JSON takes at most this many bytes for a character; base64 takes four for three
_EXPANSION = 6
# further variables would show secrets to the reader
_VARIABLES = ("PATH", "LD_LIBRARY_PATH", "TESSDATA_PREFIX")


class Sandbox:
    """A process that forks confined children; starts with the first file. Use it in one thread.

    Args:
        limits: of each file.
        folder: of temporary files; None takes the system's.
    """

    def __init__(self, limits: Limits, folder: Path | None = None) -> None:
        self._limits = limits
        self._folder = None if folder is None else str(folder)
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(
        self, kind: str, source: IO[bytes], page: int | None = None, languages: str = ""
    ) -> IO[bytes]:
        """The answer of a reader to a file.

        Args:
            kind: of ``KINDS`` of ``docsplit.extraction.kinds``, perhaps with a packing.
            source: a real file, at its start.
            page: whose text to recognise, from 0; None reads the file.
            languages: of the page, as tesseract names them; the first page decides for all.

        Returns:
            A file with the lines that the child wrote, from the first.

        Raises:
            UnreadableError: the reader took too much time or memory, wrote too much, or crashed.
            StartError: the process does not start, or it can recognise no text.
        """
        control = self._started()
        request = {"kind": kind, "limits": asdict(self._limits)}
        message = json.dumps({**request, "page": page, "languages": languages}).encode()
        seconds = self._limits.seconds * (_PATIENCE if page is None else _LONG_PATIENCE)
        control.settimeout(seconds)
        reading, writing = os.pipe()
        answer = tempfile.SpooledTemporaryFile(  # noqa: SIM115 the caller closes it
            _SPOOLED, dir=self._folder
        )
        try:
            try:
                socket.send_fds(control, [message], [source.fileno(), writing])
            finally:
                os.close(writing)
            self._receive(reading, answer, self._most(kind), seconds)
            status = control.recv(_CHUNK)
            if not status:
                raise ConnectionError
        except (OSError, UnreadableError) as error:
            answer.close()
            # this ends the child
            self.close()
            if isinstance(error, UnreadableError):
                raise
            raise UnreadableError("the process that reads files ended") from error
        finally:
            os.close(reading)
        if status != b"0":
            answer.close()
            if status.startswith(ABSENT):
                raise StartError(status.removeprefix(ABSENT).decode())
            raise UnreadableError(self._reason(int(status)))
        answer.seek(0)
        return answer

    def interrupt(self) -> None:
        """End the present ``run`` from another thread: it raises UnreadableError."""
        process = self._process
        if process is not None and process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    def close(self) -> None:
        """End the process and its child."""
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            # its own session, so this is its process group
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def _started(self) -> socket.socket:
        if self._control is None:
            if not hasattr(os, "fork"):
                raise StartError("reading files other than tables needs Linux or macOS")
            self._control, theirs = socket.socketpair()
            module = "docsplit.extraction.confined"
            with theirs:
                self._process = subprocess.Popen(  # noqa: S603 this interpreter
                    [sys.executable, "-P", "-m", module, str(theirs.fileno())],
                    env=environment(),
                    cwd="/",
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
            self._control.settimeout(_START_SECONDS)
            try:
                ready = self._control.recv(_CHUNK)
            except TimeoutError:
                ready = b""
            if not ready:
                self.close()
                raise StartError("the process that reads files does not start")
            if ready == FREE:
                log.warning(
                    "this system has no seccomp filters or no libseccomp: a flaw in a parser could "
                    "reach files and the network"
                )
        return self._control

    def _receive(self, reading: int, answer: IO[bytes], left: int, seconds: int) -> None:
        deadline = time.monotonic() + seconds
        poll = select.poll()
        poll.register(reading, select.POLLIN)
        while True:
            waiting = max(0.0, deadline - time.monotonic())
            if not poll.poll(waiting * 1000):
                raise UnreadableError(f"reading it takes more than {self._limits.seconds} s")
            chunk = os.read(reading, _CHUNK)
            if not chunk:
                return
            left -= len(chunk)
            if left < 0:
                raise UnreadableError("its text is larger than the limit")
            answer.write(chunk)

    def _most(self, kind: str) -> int:
        """The bytes of an answer."""
        limits = self._limits
        if kind.startswith(ARCHIVES):
            return 2 * limits.unpacked
        return _EXPANSION * limits.characters

    def _reason(self, status: int) -> str:
        ended = os.waitstatus_to_exitcode(status)
        if ended in (-signal.SIGXCPU, -signal.SIGKILL):
            return f"reading it takes more than {self._limits.seconds} s"
        return "its reader crashed: the file is damaged, or it needs more memory than the limit"


def environment() -> dict[str, str]:
    """The variables of a confined process that runs modules of this interpreter."""
    kept = {name: os.environ[name] for name in _VARIABLES if name in os.environ}
    # the process has another working directory
    modules = os.pathsep.join(map(os.path.abspath, sys.path))
    return {**kept, "PYTHONPATH": modules, "LC_ALL": "C.UTF-8"}
