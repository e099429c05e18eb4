"""What OpenVINO computes in."""

from __future__ import annotations

import openvino
import pytest

from service.embedding.engines.interface import Arithmetic
from service.embedding.engines.openvino_cpu import floating
from service.embedding.engines.processor import detect

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
def test_what_is_not_int8_is_bf16_where_the_processor_has_it(
    arithmetic: Arithmetic, capabilities: list[str], expected: str
) -> None:
    assert floating(arithmetic, capabilities) == expected


def test_openvino_and_the_service_agree_on_this_processor() -> None:
    has = "BF16" in openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    assert has == detect().bf16
