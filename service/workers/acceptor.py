"""Accepts connections and hands each to the front that has fewest.

Fronts that accept from one socket by themselves share connections badly (of 16 that stayed open,
four fronts took 8, 6, 1 and 1), and with SO_REUSEPORT what waits in a front's queue is lost with
that front.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Collection
from contextlib import suppress

import structlog

from service.server.serving import BACKLOG
from service.workers.channel import FrontChannel

log = structlog.get_logger("docsplit")

# a front that has answered so long ago gets connections only where all have
LATE_SECONDS = 2.0


def listen(host: str, port: int) -> list[socket.socket]:
    """Listening sockets on all addresses of a host.

    Raises:
        OSError: an address cannot be listened on.
    """
    listeners: list[socket.socket] = []
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    for family, _, _, _, address in dict.fromkeys(found):
        listener = socket.socket(family, socket.SOCK_STREAM)
        listeners.append(listener)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.setblocking(False)
        try:
            listener.bind(address)
        except OSError:
            for opened in listeners:
                opened.close()
            raise
        listener.listen(BACKLOG)
    return listeners


class Acceptor:
    """Shares connections out.

    Args:
        listeners: closed by ``close``.
        fronts: those that run, at any time.
    """

    def __init__(self, listeners: list[socket.socket], fronts: Collection[FrontChannel]) -> None:
        self._listeners = listeners
        self._fronts = fronts
        self._accepting = False

    def accept(self, wanted: bool) -> None:
        """Accept from now on, or let connections wait in the kernel."""
        loop = asyncio.get_running_loop()
        if wanted != self._accepting:
            self._accepting = wanted
            for listener in self._listeners:
                if wanted:
                    loop.add_reader(listener, self._accept, listener)
                else:
                    loop.remove_reader(listener)

    def close(self) -> None:
        """Take the connections that wait, then listen no more."""
        if self._accepting:
            for listener in self._listeners:
                while self._accept(listener):
                    pass
        self.accept(False)
        for listener in self._listeners:
            listener.close()
        self._listeners = []

    def _accept(self, listener: socket.socket) -> bool:
        """Whether there was a connection to accept."""
        try:
            connection, _ = listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return False
        except OSError as error:
            log.error("cannot_accept", reason=str(error))
            # whoever looks after the fronts asks again in a moment
            self.accept(False)
            return False
        with connection:
            # where the client has left already, the front finds out
            with suppress(OSError):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._hand(connection)
        return True

    def _hand(self, connection: socket.socket) -> None:
        due = time.monotonic() - LATE_SECONDS
        up = [front for front in self._fronts if front.came_up]
        for front in sorted(up, key=lambda f: (f.seen < due, f.open, f.handed_at)):
            if front.hand(connection):
                return
        log.error("connection_dropped")
