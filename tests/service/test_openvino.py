"""The precision in which OpenVINO computes."""

from __future__ import annotations

import openvino
import pytest

from bundles.arithmetic import Arithmetic
from bundles.processor import detect
from service.embedding.engines.openvino_cpu import floating

WITHOUT = ["FP32", "INT8"]
WITH = [*WITHOUT, "BF16"]


@pytest.mark.parametrize(
    ("arithmetic", "capabilities", "expected"),
    [
        ("int8", WITH, "bf16"),
        ("bf16", WITH, "bf16"),
        ("f32", WITH, "f32"),
        ("int8", WITHOUT, "f32"),
        ("f32", WITHOUT, "f32"),
    ],
)
def test_operators_that_are_not_int8_use_bf16_if_available(
    arithmetic: Arithmetic, capabilities: list[str], expected: str
) -> None:
    assert floating(arithmetic, capabilities) == expected


def test_openvino_and_the_service_agree_on_this_processor() -> None:
    has = "BF16" in openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    assert has == detect().bf16
