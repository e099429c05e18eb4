"""Join the table of a bundle's static branch to another transformer.

The table does not depend on the transformer that it was trained beside. The checkpoint of the
former default bundle was not kept, so the table comes from the bundle's graph:

    git show 12e4072:models/docsplit-minilm-l6-static/model.fp16.onnx > model.fp16.onnx
    python -m studies.encoders.joined_table runs/mean model.fp16.onnx runs/joined

The result has the transformer's dimensions and the table's; ``docsplit-train whiten`` shortens it.
"""

import argparse
from pathlib import Path

import onnx
import torch
from onnx import numpy_helper
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize

from export.checkpoint.own_code import save_with_code
from export.checkpoint.static_branch import StaticBranch

SHARE = 0.4


def branch(graph: onnx.GraphProto, share: float) -> StaticBranch:
    """The static branch of a graph, with another share of the cosine.

    Raises:
        ValueError: the graph has no such branch.
    """
    held = {
        one.name.rpartition(".")[2]: torch.from_numpy(numpy_helper.to_array(one).copy())
        for one in graph.initializer
        if one.name.endswith((".table", ".scale"))
    }
    if set(held) != {"table", "scale"}:
        raise ValueError("the graph has no static branch")
    tokens, width = held["table"].shape
    made = StaticBranch(tokens, width, share)
    made.table.copy_(held["table"])
    made.scale.copy_(held["scale"])
    return made


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m studies.encoders.joined_table")
    parser.add_argument("encoder", help="checkpoint with the tokenizer of the bundle")
    parser.add_argument("graph", type=Path, help="model.fp16.onnx of the bundle")
    parser.add_argument("output", type=Path, help="folder of the result")
    parser.add_argument("--share", type=float, default=SHARE, help=f"of the cosine ({SHARE})")
    parser.add_argument("--max-tokens", type=int, default=512, help="window (default: 512)")
    given = parser.parse_args()
    model = SentenceTransformer(given.encoder, device="cpu")
    model.float().max_seq_length = given.max_tokens
    model.append(branch(onnx.load(given.graph).graph, given.share))
    model.append(Normalize())
    save_with_code(model, given.output)


if __name__ == "__main__":
    main()
