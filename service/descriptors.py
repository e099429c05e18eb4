"""File descriptors: every connection takes one, and systems grant few by default."""

import structlog

log = structlog.get_logger("docsplit")

# for tables, libraries, Redis and the log
RESERVED = 512


def room(connections: int) -> int:
    """Raise the process's own limit as far as allowed; return how many connections fit."""
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
    fitting = max(1, soft - RESERVED)
    log.warning("few_descriptors", limit=soft, connections=fitting, wanted=connections)
    return fitting
