"""The chosen engine, and the reason for it."""

from __future__ import annotations

import pytest

from docsplit.bundles.manifest import PrecisionName
from docsplit.engines.choice import (
    ArithmeticWish,
    Choice,
    ChoiceError,
    EngineWish,
    Processor,
    choose,
    detect,
)

BOTH: set[PrecisionName] = {"fp16", "int8"}


def processor(*, bf16: bool = False, int8: bool = False) -> Processor:
    return Processor("a processor", 2, bf16, int8)


def chosen(choice: Choice) -> tuple[str, str, str]:
    return choice.engine, choice.arithmetic, choice.graph


@pytest.mark.parametrize(
    ("machine", "expected"),
    [
        (processor(bf16=True, int8=True), ("openvino", "bf16", "fp16")),
        (processor(int8=True), ("openvino", "int8", "int8")),
        (processor(), ("openvino", "f32", "fp16")),
    ],
)
def test_auto_depends_on_the_processor(machine: Processor, expected: tuple[str, str, str]) -> None:
    choice = choose("auto", "auto", machine, BOTH)
    assert chosen(choice) == expected
    assert "processor has" in choice.reason


@pytest.mark.parametrize(
    ("precisions", "graph", "reason"),
    [
        ({"fp16", "packed"}, "packed", "computes no padding"),
        ({"fp16", "int8"}, "fp16", "no packed graph"),
    ],
)
def test_cuda_uses_the_packed_graph_if_there_is_one(
    precisions: set[PrecisionName], graph: str, reason: str
) -> None:
    choice = choose("onnx-cuda", "auto", processor(), precisions)
    assert chosen(choice) == ("onnx-cuda", "fp16", graph)
    assert reason in choice.reason


def test_a_cpu_never_uses_the_packed_graph() -> None:
    for engine in ("openvino", "onnx-cpu"):
        assert choose(engine, "auto", processor(), {"fp16", "packed"}).graph == "fp16"


def test_auto_without_an_int8_graph_stays_in_f32() -> None:
    assert chosen(choose("auto", "auto", processor(int8=True), {"fp16"}))[1] == "f32"


def test_a_bundle_with_only_an_int8_graph_runs_on_every_processor() -> None:
    for machine in (processor(bf16=True), processor()):
        choice = choose("openvino", "auto", machine, {"int8"})
        assert chosen(choice) == ("openvino", "int8", "int8")
        assert "no fp16 graph" in choice.reason


def test_a_setting_is_obeyed_and_named_as_the_reason() -> None:
    choice = choose("openvino", "int8", processor(), BOTH)
    assert chosen(choice) == ("openvino", "int8", "int8")
    assert "asked for" in choice.reason


@pytest.mark.parametrize(
    ("engine", "arithmetic", "precisions", "hint"),
    [
        ("openvino", "bf16", BOTH, "no bf16"),
        ("openvino", "int8", {"fp16"}, "no int8 graph"),
        ("openvino", "fp16", BOTH, "needs CUDA"),
        ("onnx-cpu", "int8", BOTH, "use openvino"),
        ("onnx-cuda", "f32", BOTH, "fp16"),
    ],
)
def test_an_impossible_setting_is_refused_with_a_remedy(
    engine: EngineWish, arithmetic: ArithmeticWish, precisions: set[PrecisionName], hint: str
) -> None:
    with pytest.raises(ChoiceError, match=hint):
        choose(engine, arithmetic, processor(), precisions)


def test_the_processor_of_this_machine_is_detected() -> None:
    assert detect().cores >= 1
    assert "cores" in detect().summary
