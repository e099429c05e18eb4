"""Run the bundle's graphs directly in their runtimes, without HTTP. This is the upper limit."""

from __future__ import annotations

import concurrent.futures
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from tokenizers import Tokenizer

from docsplit.windowing import vectors
from docsplit.windowing.vectors import pad

Batch = tuple[NDArray[np.int64], NDArray[np.int64]]
Run = Callable[[NDArray[np.int64], NDArray[np.int64]], object]


def batches(tokenizer: Path, texts: Sequence[str], budget: int) -> tuple[list[Batch], int]:
    """Batches of similar length of at most ``budget`` padded tokens, and the tokens in them."""
    encodings = Tokenizer.from_file(str(tokenizer)).encode_batch(texts)
    ids = [np.array(one.ids) for one in encodings]
    lengths = [len(row) for row in ids]
    made = [pad([ids[i] for i in group], 0) for group in vectors.batches(lengths, budget)]
    return made, sum(lengths)


def onnx_fp32(graph: Path, threads: int) -> Run:
    """ONNX Runtime on the CPU in fp32. It converts the fp16 graph once and uses one session."""
    widened = widen(onnx.load(graph))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(
        widened.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return lambda ids, mask: session.run(None, {"input_ids": ids, "attention_mask": mask})


def widen(model: onnx.ModelProto) -> onnx.ModelProto:
    """An fp16 graph as fp32: initialisers, constants, casts and value types."""
    half, full = onnx.TensorProto.FLOAT16, onnx.TensorProto.FLOAT

    def wide(tensor: onnx.TensorProto) -> None:
        if tensor.data_type == half:
            values = onnx.numpy_helper.to_array(tensor).astype(np.float32)
            tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))

    for tensor in model.graph.initializer:
        wide(tensor)
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                wide(attribute.t)
            if node.op_type == "Cast" and attribute.name == "to" and attribute.i == half:
                attribute.i = full
    del model.graph.value_info[:]
    for value in (*model.graph.input, *model.graph.output):
        if value.type.tensor_type.elem_type == half:
            value.type.tensor_type.elem_type = full
    return model


def seconds(run: Run, work: Sequence[Batch], streams: int) -> float:
    """Time for all batches, called from ``streams`` threads."""
    with concurrent.futures.ThreadPoolExecutor(streams) as pool:
        began = time.monotonic()
        list(pool.map(lambda batch: run(*batch), work))
        return time.monotonic() - began
