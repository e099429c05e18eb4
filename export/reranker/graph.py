"""A cross-encoder as one ONNX graph, fp32 and unfused."""

from pathlib import Path

import onnx
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from export.checkpoint.relative import tabled_buckets
from export.checkpoint.rotary import tabled_rotations
from export.graphs.graph import TAIL, trace
from export.reranker.source import PairSource
from export.storage import save

OUTPUT = "logits"


class PairScorer(nn.Module):
    """The computation of a re-ranker's graph: from ids and mask to the classifier's output."""

    def __init__(self, source: PairSource) -> None:
        super().__init__()
        self.model = source.encoder
        self.segment_offset = source.segment_offset

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """int64 ``[batch, tokens]`` twice → float32 ``[batch, 1]``."""
        types: dict[str, Tensor] = {}
        if self.segment_offset:
            second = (input_ids >= self.segment_offset).long()
            input_ids = input_ids - second * self.segment_offset
            types["token_type_ids"] = second
        found = self.model(input_ids=input_ids, attention_mask=attention_mask, **types)
        logits: Tensor = found.logits.float()
        return logits


def write_pair_graph(source: PairSource, path: Path) -> None:
    """Write ``source`` as an fp32 ONNX file with dynamic batch and tokens.

    The nodes behind the encoder get names below ``/tail/``, so they stay in fp32 as the pooling of
    an encoder does.
    """
    module = PairScorer(source).eval()
    ids = torch.tensor([source.tokenizer(*pair)["input_ids"] for pair in (("a", "b"), ("b", "a"))])
    rotations = tabled_rotations(source.base, source.max_tokens)
    buckets = tabled_buckets(source.base, source.max_tokens)
    with rotations, buckets:
        trace(module, ids, path, OUTPUT)
    model = onnx.load(path)
    behind = _behind(source.encoder)
    for node in model.graph.node:
        if node.name.startswith(behind):
            node.name = f"{TAIL}{node.name.removeprefix('/')}"
    save(model, path)


def _behind(encoder: PreTrainedModel) -> tuple[str, ...]:
    """Name scopes of the modules behind the encoder: the classifier and what pools for it."""
    base = encoder.base_model_prefix
    own = [name for name, _ in encoder.named_children() if name != base]
    return tuple(f"/model/{name}/" for name in (*own, f"{base}/pooler"))
