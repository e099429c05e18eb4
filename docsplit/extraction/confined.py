"""The process that reads files: it forks a child for each, which can only compute and answer.

``Sandbox`` in sandbox.py starts it. A child may take bounded memory and processor time,
and can neither open files nor sockets, so that a flaw in a parser gives an attacker nothing but the
content of the attacker's own file. Where the system has no seccomp filters, only the bounds hold.
"""

from __future__ import annotations

import codecs
import encodings
import errno
import gc
import json
import os
import pkgutil
import resource
import socket
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from docsplit.extraction.building import clean
from docsplit.extraction.content import ABSENT, DENIED, FREE, Content, Limits, UnreadableError
from docsplit.extraction.kinds import ARCHIVES, READERS, SOURCES, reader_of
from docsplit.extraction.readers import archive
from docsplit.extraction.readers.encoded import text_of
from docsplit.extraction.readers.pdf import AbsentError, Recogniser
from docsplit.extraction.readers.pdf_layout import opened
from docsplit.extraction.sources import content_of

try:
    import pyseccomp
except (ImportError, OSError, RuntimeError):
    # another system, or one without libseccomp
    pyseccomp = None

# none opens a file or a socket, or reaches another process
_ALLOWED = (
    "brk clock_gettime close exit exit_group fstat futex getpid getrandom gettid lseek madvise mmap"
    " mprotect mremap munmap pread64 read rt_sigaction rt_sigprocmask rt_sigreturn sched_yield"
    " sysinfo write"
)


def deny() -> bool:
    """Deny the calls from now on and for good: they fail with EPERM.

    Returns:
        Whether the system can do so.
    """
    if pyseccomp is None or sys.platform != "linux":
        return False
    held = pyseccomp.SyscallFilter(pyseccomp.ERRNO(errno.EPERM))
    for name in _ALLOWED.split():
        held.add_rule(pyseccomp.ALLOW, name)
    try:
        held.load()
    except OSError:
        return False
    return True


_MESSAGE_BYTES = 65_536
# recognising takes long: others go first
_NICE = 5


def main() -> None:
    """Serve requests from the socket whose number is the first argument, until it closes."""
    control = socket.socket(fileno=int(sys.argv[1]))
    _load()
    gc.collect()
    gc.freeze()
    control.sendall(DENIED if _denies() else FREE)
    while True:
        message, files, _, _ = socket.recv_fds(control, _MESSAGE_BYTES, 2)
        if not message:
            return
        request = json.loads(message)
        try:
            # a child cannot open the library and its data
            recogniser = None if request["page"] is None else _recogniser(request["languages"])
        except AbsentError as error:
            answer = ABSENT + str(error).encode()
        else:
            child = os.fork()
            if child == 0:
                control.close()
                _child(request, files[0], files[1], recogniser)
            answer = b"%d" % os.waitpid(child, 0)[1]
        for file in files:
            os.close(file)
        control.sendall(answer)


@cache
def _recogniser(languages: str) -> Recogniser:
    return Recogniser(languages)


def _denies() -> bool:
    """Whether a child can be denied system calls; another one finds out."""
    child = os.fork()
    if child == 0:
        os._exit(0 if deny() else 1)
    return os.waitpid(child, 0)[1] == 0


def _load() -> None:
    """Import whatever a child may need: it cannot open the files of modules."""
    for kind in READERS:
        reader_of(kind)
    # some, such as utf-8-sig, have no alias
    for module in pkgutil.iter_modules(encodings.__path__):
        with suppress(LookupError, ImportError):
            codecs.lookup(module.name)
    # what reading a date imports and opens
    time.strptime("2000", "%Y")
    time.localtime()


def _child(
    request: dict[str, Any], source: int, target: int, recogniser: Recogniser | None
) -> None:
    status = 1
    try:
        silent = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(silent, standard)
        warnings.simplefilter("ignore")
        limits = Limits(**request["limits"])
        if recogniser is not None:
            os.nice(_NICE)
        with open(source, "rb") as stream, open(target, "wb") as answer:
            _confine(limits)
            for line in _safely(_answer(request, stream, limits, recogniser), limits):
                answer.write(line)
        status = 0
    finally:
        # handlers at exit belong to the parent
        os._exit(status)


def _confine(limits: Limits) -> None:
    taken = 0
    with suppress(OSError):
        taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    bounds = {
        resource.RLIMIT_AS: taken + limits.memory,
        resource.RLIMIT_CPU: limits.seconds,
        # neither files nor a dump; the answer goes into a pipe
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_CORE: 0,
    }
    for kind, most in bounds.items():
        # not every system bounds the address space
        with suppress(OSError, ValueError):
            resource.setrlimit(kind, (most, most))
    deny()


def _safely(read: Iterator[bytes], limits: Limits) -> Iterator[bytes]:
    try:
        yield from read
    except UnreadableError as error:
        yield _refusal(str(error))
    except MemoryError:
        yield _refusal(f"reading it takes more than {limits.memory:,} bytes of memory")
    except RecursionError:
        yield _refusal("it is nested too deeply")
    except Exception as error:  # noqa: BLE001 a parser may raise anything for a damaged file
        yield _refusal(f"damaged, or of another kind ({type(error).__name__})")


def _answer(
    request: dict[str, Any], stream: BinaryIO, limits: Limits, recogniser: Recogniser | None
) -> Iterator[bytes]:
    inner, dot, packing = request["kind"].rpartition(".")
    kind = inner or request["kind"]
    if inner:
        stream = archive.unpacked(stream, dot + packing, limits)
    if recogniser is not None:
        text = recogniser.text(opened(stream)[request["page"]])
        yield json.dumps(clean(text)).encode()
    elif kind in ARCHIVES:
        yield from archive.unpack(stream, kind, limits)
    else:
        yield orjson.dumps(_content(kind, stream, limits), default=tuple)


def _content(kind: str, stream: BinaryIO, limits: Limits) -> Content:
    if kind in SOURCES:
        content = content_of(kind, text_of(stream.read(), limits))
    else:
        content = reader_of(kind)(stream, limits)
    if not content.text.strip() and not content.scans:
        raise UnreadableError("it holds no text")
    return content


def _refusal(reason: str) -> bytes:
    return json.dumps({"refused": reason, "whole": True}).encode() + b"\n"


if __name__ == "__main__":
    main()
