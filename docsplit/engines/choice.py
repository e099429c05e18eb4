"""Choose the engine, the graph and the precision of a bundle on this machine, with the reason.

The service chooses so, and so does every command that promises the vectors of the service.
"""

import importlib.metadata
import importlib.util
import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from docsplit.bundles.manifest import BundleError, PrecisionName


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


EngineName = Literal["openvino", "onnx-cpu", "onnx-cuda"]
Arithmetic = Literal["f32", "bf16", "fp16", "int8"]
EngineWish = Literal["auto", "openvino", "onnx-cpu", "onnx-cuda"]
ArithmeticWish = Literal["auto", "f32", "bf16", "fp16", "int8"]


class ChoiceError(BundleError):
    """The bundle cannot run as the settings want; the message names what is possible."""


@dataclass(frozen=True, slots=True)
class Choice:
    """An engine that can be built, and the reason for choosing it."""

    engine: EngineName
    arithmetic: Arithmetic
    graph: PrecisionName
    reason: str


def choose(
    engine: EngineWish,
    arithmetic: ArithmeticWish,
    processor: Processor,
    precisions: Collection[PrecisionName],
) -> Choice:
    """Choose by the settings, the installed packages and the processor.

    Args:
        engine: the wanted engine.
        arithmetic: the wanted precision.
        processor: of this machine.
        precisions: graphs of the bundle.

    Raises:
        ChoiceError: the settings cannot be met; the message names what is possible.
    """
    name, why = _engine(engine)
    if name == "onnx-cuda":
        if arithmetic not in ("auto", "fp16"):
            raise ChoiceError(
                f"precision {arithmetic}: on CUDA the graph is fp16; use fp16 or auto"
            )
        if "packed" in precisions:
            return Choice(name, "fp16", "packed", f"{why}; the packed graph computes no padding")
        return Choice(name, "fp16", "fp16", f"{why}; the bundle has no packed graph")
    if arithmetic == "fp16":
        raise ChoiceError("precision fp16 needs CUDA; on a CPU use f32, bf16, int8 or auto")
    if name == "onnx-cpu":
        if arithmetic not in ("auto", "f32"):
            raise ChoiceError(f"precision {arithmetic}: engine onnx-cpu has f32 only; use openvino")
        return Choice(name, "f32", "fp16", f"{why}; onnx-cpu computes in f32")
    if arithmetic == "bf16" and not processor.bf16:
        raise ChoiceError(f"precision bf16: {processor.name} has no bf16; use f32 or auto")
    if arithmetic == "int8" and "int8" not in precisions:
        raise ChoiceError("precision int8: the bundle has no int8 graph")
    if arithmetic != "auto":
        graph: PrecisionName = "int8" if arithmetic == "int8" else "fp16"
        return Choice(name, arithmetic, graph, f"{why}; precision {arithmetic} was asked for")
    if "int8" in precisions and "fp16" not in precisions:
        return Choice(name, "int8", "int8", f"{why}; the bundle has no fp16 graph")
    if processor.bf16:
        return Choice(name, "bf16", "fp16", f"{why}; the processor has bf16")
    if processor.int8 and "int8" in precisions:
        return Choice(name, "int8", "int8", f"{why}; the processor has int8 dot products, no bf16")
    return Choice(
        name, "f32", "fp16", f"{why}; the processor has neither bf16 nor int8 dot products"
    )


def _engine(wish: EngineWish) -> tuple[EngineName, str]:
    if wish != "auto":
        return wish, f"engine {wish} was asked for"
    if _cuda_present():
        return "onnx-cuda", "onnxruntime-gpu and an NVIDIA device are here"
    if importlib.util.find_spec("openvino") is not None:
        return "openvino", "no CUDA, and openvino is installed"
    if importlib.util.find_spec("onnxruntime") is not None:
        return "onnx-cpu", "no CUDA and no openvino"
    raise ChoiceError("no runtime is installed: pip install 'docsplit[cpu]' or 'docsplit[gpu]'")


def _cuda_present() -> bool:
    """Whether the CUDA build of onnxruntime and an NVIDIA device exist; imports neither."""
    try:
        importlib.metadata.version("onnxruntime-gpu")
    except importlib.metadata.PackageNotFoundError:
        return False
    return any(Path(device).exists() for device in ("/dev/nvidiactl", "/dev/dxg"))
