"""Recover the fp32 weights of a BERT encoder from the fp16 graph of its bundle.

The checkpoint of docsplit-minilm-l6-w512, the former default bundle, was not kept, and training of
the present one continued from it:

    git show f1800d7:models/docsplit-minilm-l6-w512/model.fp16.onnx > model.fp16.onnx
    python -m studies.encoders.recovered_weights model.fp16.onnx all-MiniLM-L6-v2 runs/recovered

The second argument is a checkpoint of the same shape, whose tokenizer and modules the result takes.
The cosine between the vectors of the graph and of the result is printed.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import numpy_helper
from sentence_transformers import SentenceTransformer

TEXTS = ["A whole document, however long.", "What is a window?", "The quick brown fox. " * 40]
_PROJECTIONS = ("query", "key", "value")
# the order in which a layer of the graph multiplies by them
_MATRICES = ("attention.output.dense", "intermediate.dense", "output.dense")


def weights(graph: onnx.GraphProto) -> Iterator[tuple[str, torch.Tensor]]:
    """Names as in transformers' BertModel, and fp32 values."""
    values = {
        one.name: torch.from_numpy(numpy_helper.to_array(one).astype(np.float32))
        for one in graph.initializer
    }
    for name, value in values.items():
        yield name.removeprefix("encoder."), value
    products = [node.input[1] for node in graph.node if node.op_type == "MatMul"]
    attentions = [node for node in graph.node if node.op_type == "Attention"]
    for layer, attention in enumerate(attentions):
        matrix, bias = values[attention.input[1]], values[attention.input[2]]
        for place, name in enumerate(_PROJECTIONS):
            prefix = f"encoder.layer.{layer}.attention.self.{name}"
            yield f"{prefix}.weight", matrix.chunk(3, dim=1)[place].T.contiguous()
            yield f"{prefix}.bias", bias.chunk(3)[place].contiguous()
        for name, product in zip(_MATRICES, products[3 * layer :], strict=False):
            yield f"encoder.layer.{layer}.{name}.weight", values[product].T.contiguous()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m studies.encoders.recovered_weights")
    parser.add_argument("graph", type=Path, help="model.fp16.onnx of the bundle")
    parser.add_argument("start", help="checkpoint of the same shape")
    parser.add_argument("output", type=Path, help="folder of the result")
    parser.add_argument("--max-tokens", type=int, default=512, help="window (default: 512)")
    given = parser.parse_args()
    model = SentenceTransformer(given.start, device="cpu")
    transformer: Any = model[0]
    bert = transformer.auto_model
    found = dict(weights(onnx.load(given.graph).graph))
    # the pooler plays no part in mean pooling
    own = {name: found.get(name, value) for name, value in bert.state_dict().items()}
    kept = [name for name in own if name not in found and not name.startswith("pooler")]
    if kept:
        parser.error(f"{given.graph} lacks {', '.join(kept)}")
    bert.load_state_dict(own)
    model.max_seq_length = given.max_tokens
    model.save_pretrained(str(given.output), create_model_card=False)
    session = onnxruntime.InferenceSession(given.graph, providers=["CPUExecutionProvider"])
    tokens = model.tokenizer(TEXTS, padding=True, return_tensors="np")
    ids = {name: tokens[name].astype(np.int64) for name in ("input_ids", "attention_mask")}
    served: Any = session.run(None, ids)[0]
    print(*(f"{cosine:.6f}" for cosine in (served * model.encode(TEXTS)).sum(1)))


if __name__ == "__main__":
    main()
