"""The processor of this machine."""

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Processor:
    """Cores that this process may use, and instructions that decide between precisions."""

    name: str
    cores: int
    bf16: bool
    int8: bool

    @property
    def summary(self) -> str:
        """One line for logs and /info."""
        named = (("bf16", self.bf16), ("int8 dot products", self.int8))
        has = " and ".join(n for n, present in named if present)
        return f"{self.name}, {self.cores} cores, {has or 'neither bf16 nor int8 dot products'}"


def detect() -> Processor:
    """Read the processor; an unknown system counts as having neither bf16 nor int8."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    fields = {k.strip(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
    flags = set((fields.get("flags", "")).split())
    return Processor(
        name=fields.get("model name", "unknown processor"),
        cores=_usable_cores(),
        bf16=bool(flags & {"avx512_bf16", "amx_bf16"}),
        int8=bool(flags & {"avx512_vnni", "avx_vnni", "amx_int8"}),
    )


def _usable_cores() -> int:
    """Cores by affinity and by the cgroup's quota, whichever is less."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    cores = affinity or 1
    quota, period = _quota()
    return max(1, min(cores, round(quota / period))) if quota > 0 else cores


def _quota() -> tuple[int, int]:
    """Microseconds of processor time per period, and the period; (-1, 1) without a quota."""
    for files in (
        ("cpu.max",),
        ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"),
    ):
        try:
            values = " ".join(Path("/sys/fs/cgroup", f).read_text("ascii") for f in files).split()
            return int(values[0]), int(values[1])
        except (OSError, ValueError, IndexError):
            continue
    return -1, 1
