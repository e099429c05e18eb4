"""What Linux knows of a process: its memory, its processor time, its children."""

from __future__ import annotations

import os
from pathlib import Path


def status(pid: int, field: str) -> int:
    """A number in ``/proc/PID/status``; memory is in KiB.

    Raises:
        OSError: the process has ended.
        ValueError: it has no such field, as a process that has ended but was not waited for.
    """
    return _number(Path(f"/proc/{pid}/status"), field)


def written(pid: int) -> int:
    """Bytes that a process has written to disks; raises as ``status``."""
    return _number(Path(f"/proc/{pid}/io"), "write_bytes")


def forget_peak(pid: int) -> None:
    """Reset ``VmHWM`` of a process to the memory in use now."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def processor_seconds(pid: int) -> float:
    """Processor time of a process and of its children that have ended."""
    times = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]
    return sum(map(int, times)) / os.sysconf("SC_CLK_TCK")


def children(pid: int) -> list[int]:
    """Processes that any thread of a process has started and that have not been waited for."""
    files = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for file in files for child in file.read_text().split()]


def _number(path: Path, field: str) -> int:
    for line in path.read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1])
    raise ValueError(f"no {field} in {path}")
