"""The fp16 graph on a GPU; skipped without one."""

from __future__ import annotations

import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import httpx
import pytest

from tests.conftest import serving


def why_not() -> str | None:
    """The reason why no GPU can compute here; None if one can."""
    try:
        version("onnxruntime-gpu")
    except PackageNotFoundError:
        return "onnxruntime-gpu is not installed (extra: gpu)"
    if shutil.which("nvidia-smi") is None:
        return "no NVIDIA driver"
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    return None if "GPU 0" in listed.stdout else "no NVIDIA device"


@pytest.mark.gpu
@pytest.mark.skipif(why_not() is not None, reason=why_not() or "")
def test_cuda_returns_the_same_vectors_as_the_cpu(tmp_path: Path) -> None:
    body = {"inputs": ["a short text", "a longer text, " * 400]}
    with serving(tmp_path / "cuda", "--engine", "onnx-cuda") as server:
        info = httpx.get(f"{server.url}/info").json()
        assert info["engine"]["device"] == "CUDA:0"
        on_gpu = httpx.post(f"{server.url}/embed", json=body, timeout=60).json()
    with serving(tmp_path / "cpu", "--engine", "onnx-cpu") as server:
        on_cpu = httpx.post(f"{server.url}/embed", json=body, timeout=60).json()
    for one, other in zip(on_gpu, on_cpu, strict=True):
        assert sum(a * b for a, b in zip(one, other, strict=True)) >= 0.9999
    assert sum(a * b for a, b in zip(on_gpu[0], on_cpu[1], strict=True)) < 0.99
