"""The encoder with its pooling and normalisation as one ONNX graph, fp32 and unfused."""

import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

import torch
from torch import Tensor, nn

from docsplit.bundles.manifest import Pooling
from export.checkpoint import long_attention
from export.checkpoint.modules import BRANCH
from export.checkpoint.onnx_folder import GraphEncoder
from export.checkpoint.relative import tabled_buckets
from export.checkpoint.rotary import tabled_rotations
from export.checkpoint.source import Source
from export.errors import ExportError
from export.graphs.join import join

INPUTS = ("input_ids", "attention_mask")
OUTPUT = "sentence_embedding"
# Name scope of pooling and normalisation: fp16 and int8 leave its nodes in fp32.
TAIL = "/tail/"
OPSET = 17


class PoolAndNormalise(nn.Module):
    """Turn token vectors into unit vectors, in fp32.

    The poolings are those of Sentence-BERT (Reimers and Gurevych 2019, section 3), and the last
    token of decoders. ``after`` holds the checkpoint's modules behind its pooling.
    """

    def __init__(self, pooling: Pooling, after: Sequence[nn.Module] = ()) -> None:
        super().__init__()
        self.pooling = pooling
        self.after = nn.ModuleList(after)

    def forward(
        self, hidden: Tensor, attention_mask: Tensor, input_ids: Tensor | None = None
    ) -> Tensor:
        """``hidden`` float ``[batch, tokens, dimensions]``, ``attention_mask`` int64
        ``[batch, tokens]`` → float32 ``[batch, outputs]`` of length 1. The modules behind the
        pooling decide ``outputs``; only a static branch reads ``input_ids``, like the mask."""
        hidden = hidden.float()
        mask = attention_mask.unsqueeze(-1).float()
        if self.pooling == "graph":
            pooled = hidden
        elif self.pooling == "cls":
            pooled = hidden[:, 0]
        elif self.pooling == "max":
            pooled = hidden.masked_fill(mask == 0, torch.finfo(torch.float32).min).amax(dim=1)
        elif self.pooling == "lasttoken":
            # padding is on the right
            last = attention_mask.sum(dim=1) - 1
            pooled = hidden.gather(1, last[:, None, None].expand(-1, 1, hidden.shape[2]))[:, 0]
        else:
            pooled = (hidden * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1e-9)
        features = {"sentence_embedding": pooled, "attention_mask": attention_mask}
        if input_ids is not None:
            features["input_ids"] = input_ids
        for module in self.after:
            features = module(features)
        return nn.functional.normalize(features["sentence_embedding"], p=2.0, dim=1)


class SentenceEncoder(nn.Module):
    """The computation of a bundle's graph: from ids and mask to unit vectors."""

    def __init__(self, source: Source) -> None:
        super().__init__()
        self.encoder = source.encoder
        self.tail = PoolAndNormalise(source.pooling, _after(source))
        self.takes_token_types = source.takes_token_types

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """int64 ``[batch, tokens]`` twice → float32 ``[batch, dimensions]``."""
        types = {"token_type_ids": torch.zeros_like(input_ids)} if self.takes_token_types else {}
        hidden = self.encoder(input_ids=input_ids, attention_mask=attention_mask, **types)
        vectors: Tensor = self.tail(hidden.last_hidden_state, attention_mask, input_ids)
        return vectors


def _after(source: Source) -> Sequence[nn.Module]:
    # the graph adds a normalisation at its end
    return source.after[:-1] if source.normalises else source.after


def write_graph(source: Source, path: Path) -> None:
    """Write ``source`` as an fp32 ONNX file with dynamic batch and tokens.

    Raises:
        ExportError: the source is a graph with operators that cannot be converted.
    """
    encoder = source.encoder
    if isinstance(encoder, GraphEncoder):
        write_joined(encoder, source, path)
        return
    module = SentenceEncoder(source).eval()
    ids = torch.tensor([source.tokenizer(text)["input_ids"] for text in ("a b c d", "d c b a")])
    long = source.encoder.config.model_type == long_attention.MODEL_TYPE
    attention = long_attention.traced_as_operators(source.encoder) if long else nullcontext()
    rotations = tabled_rotations(source.encoder, source.max_tokens)
    buckets = tabled_buckets(source.encoder, source.max_tokens)
    with attention, rotations, buckets:
        trace(module, ids, path, OUTPUT, {long_attention.DOMAIN: 1} if long else None)
    if long:
        long_attention.define(path, source.encoder.config, OPSET)


def write_joined(encoder: GraphEncoder, source: Source, path: Path) -> None:
    """Write the graph ``encoder`` with the pooling and the further modules of ``source``.

    Raises:
        ExportError: the graph has operators that cannot be converted, or a module needs the
            tokens' ids, which the pooling of a finished graph does not get.
    """
    if any(type(module).__name__ == BRANCH for module in source.after):
        raise ExportError(
            f"{source.name}: a static branch cannot be joined to a finished graph; export "
            "without --through optimum"
        )
    tail = PoolAndNormalise(source.pooling, _after(source)).eval()
    with quiet_tracing():
        join(encoder, tail, path, opset=OPSET, names=[*INPUTS, OUTPUT])


def trace(
    module: nn.Module,
    ids: Tensor,
    path: Path,
    output: str,
    custom_opsets: Mapping[str, int] | None = None,
) -> None:
    """Write the graph of a module of ids and mask, with dynamic batch and tokens.

    Args:
        module: maps int64 ``[batch, tokens]`` twice to a value for each row.
        ids: an example, int64 ``[batch, tokens]``.
        path: the ONNX file.
        output: name of the value.
        custom_opsets: version of each domain of operators that ONNX does not define.
    """
    axes = {0: "batch", 1: "tokens"}
    with torch.no_grad(), quiet_tracing():
        torch.onnx.export(
            module,
            (ids, torch.ones_like(ids)),
            str(path),
            input_names=list(INPUTS),
            output_names=[output],
            dynamic_axes={**dict.fromkeys(INPUTS, axes), output: {0: "batch"}},
            opset_version=OPSET,
            # The dynamo exporter writes graphs that the fusions for BERT do not recognise.
            dynamo=False,
            custom_opsets=custom_opsets,
        )


@contextmanager
def quiet_tracing() -> Iterator[None]:
    """Silence the tracing exporter in this context."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            # The tracing exporter is deprecated, and models warn of branches that it freezes.
            # The parity gate detects a wrongly frozen branch.
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
