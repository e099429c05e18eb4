"""What the system grants a service: an address, and a file descriptor for each connection."""

import errno
import socket

import structlog

from service.errors import CommandError

log = structlog.get_logger("docsplit")

# for tables, libraries, Redis and the log; of fewer than twice as many, half
RESERVED = 512
# with fewer descriptors the service does not start
LEAST_DESCRIPTORS = 256

# of an address that the system's tables name and the system lacks, such as ::1 without IPv6
_ABSENT = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}


class AddressError(CommandError):
    """The service cannot listen on its address."""


def check_address(host: str, port: int) -> None:
    """Find out whether the service can listen there.

    Raises:
        AddressError: another program has the port, or the address is not of this machine.
    """
    flag = "port (--port, DOCSPLIT_PORT)"
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        faults = [_fault(family, address, host) for family, _, _, _, address in found]
        for fault in faults:
            if fault is not None and (fault.errno not in _ABSENT or all(faults)):
                raise fault
    except (OSError, UnicodeError) as error:
        number = error.errno if isinstance(error, OSError) else None
        if number == errno.EADDRINUSE:
            reason = f"another program listens on port {port} of {host}: end it, or give another"
        elif number in (errno.EACCES, errno.EPERM):
            reason = f"this user may not listen on port {port}: give one above 1023"
        else:
            flag = "host (--host, DOCSPLIT_HOST)"
            reason = f"{host} is no address of this machine; 0.0.0.0 means all that it has"
        raise AddressError(f"{flag}: {reason}") from error


def everywhere(host: str, port: int) -> socket.socket | None:
    """A socket bound to all addresses of IPv6 and IPv4; None if ``host`` does not mean them.

    asyncio would bind ``::`` to those of IPv6 only.
    """
    return _bound(socket.AF_INET6, (host, port), host) if _means_both(host) else None


def _means_both(host: str) -> bool:
    return host == "::" and socket.has_dualstack_ipv6()


def _bound(family: int, address: tuple[object, ...], host: str) -> socket.socket:
    found = socket.socket(family)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # as asyncio does, so that the address has no part in IPv4
            only = 0 if _means_both(host) else 1
            found.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, only)
        found.bind(address)
    except OSError:
        found.close()
        raise
    return found


def _fault(family: int, address: tuple[object, ...], host: str) -> OSError | None:
    """Why nothing can listen on an address; None if it can."""
    try:
        _bound(family, address, host).close()
    except OSError as error:
        return error
    return None


def room(connections: int) -> int:
    """Raise the process's own limit of descriptors as far as allowed; how many connections fit.

    Raises:
        CommandError: the limit is below ``LEAST_DESCRIPTORS``.
    """
    try:
        import resource
    except ImportError:
        # Windows has no such limit
        return connections
    wanted = connections + RESERVED
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return connections
    if soft < LEAST_DESCRIPTORS:
        raise CommandError(
            f"this process may open {soft} files, and needs {LEAST_DESCRIPTORS}: raise the limit "
            "(ulimit -n, LimitNOFILE, docker --ulimit nofile)"
        )
    fitting = min(connections, soft - min(RESERVED, soft // 2))
    log.warning("few_descriptors", limit=soft, connections=fitting, wanted=connections)
    return fitting
