"""Write a checkpoint as one ONNX graph, fp32 and unfused."""

import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

import onnx
import torch
from onnx import TensorProto, compose, helper, inliner, version_converter
from torch import Tensor, nn
from transformers import PreTrainedModel

from docsplit.bundles.manifest import Pooling
from export import attention
from export.attention import tabled_buckets, tabled_rotations
from export.errors import ExportError
from export.onnx_folder import GraphEncoder
from export.source import BRANCH, Checkpoint, PairSource, Source
from export.storage import copy, fits, save

# Put pooling and normalisation behind a graph that a source brings along.


def join(
    encoder: GraphEncoder, tail: nn.Module, path: Path, *, opset: int, names: list[str]
) -> None:
    """Write the graph of ``encoder`` with ``tail`` behind it.

    Args:
        encoder: the source's graph.
        tail: from hidden values and mask to unit vectors, in a scope named ``tail``.
        path: the file to write.
        opset: version of the operators.
        names: the names of ids, mask and output.
    """
    ids, mask, output = names
    model = _plain(encoder, opset)
    graph, roles = model.graph, encoder.roles
    kept = {tensor.name for tensor in graph.initializer}
    types = {v.name: v.type.tensor_type.elem_type for v in graph.input if v.name not in kept}
    first = []
    # optimum names the output of a whole model as a bundle does
    hidden = f"source/{roles.output}"
    renamed = {roles.output: hidden}
    for new, old in ((ids, roles.ids), (mask, roles.mask)):
        wide = types[old] == TensorProto.INT64
        renamed[old] = new if wide else f"source/{old}"
        if not wide:
            first.append(
                helper.make_node("Cast", [new], [renamed[old]], f"/{new}/Cast", to=types[old])
            )
    _rename(graph, renamed)
    if roles.types is not None:
        zero = helper.make_tensor("value", types[roles.types], [1], [0])
        first.append(helper.make_node("Shape", [ids], ["token_types/shape"], "/token_types/Shape"))
        first.append(
            helper.make_node(
                "ConstantOfShape",
                ["token_types/shape"],
                [roles.types],
                "/token_types/ConstantOfShape",
                value=zero,
            )
        )
    traced = _traced(tail, encoder, path.with_name("tail.onnx"), opset, output).graph
    _rename(traced, {"hidden": hidden, "mask": mask})
    nodes = [*first, *graph.node, *traced.node]
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:], graph.input[:], graph.output[:]
    graph.node.extend(copies)
    graph.initializer.extend(traced.initializer)
    for name in (ids, mask):
        shape = ["batch", "tokens"]
        graph.input.append(helper.make_tensor_value_info(name, TensorProto.INT64, shape))
    graph.output.extend(traced.output)
    save(model, path)
    onnx.checker.check_model(path)


def _rename(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    """Rename values, also where branches read them."""
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                _rename(attribute.g, names)


def _plain(encoder: GraphEncoder, opset: int) -> onnx.ModelProto:
    """The graph with operators of version ``opset``, without functions of its own."""
    model = copy(encoder.model)
    if model.functions:
        model = inliner.inline_local_functions(model)
    [version] = [one.version for one in model.opset_import if one.domain in ("", "ai.onnx")]
    if version == opset:
        return model
    if not fits(model):
        raise ExportError(
            f"{encoder.path}: has operators of opset {version}, and more weights than ONNX's "
            f"converter takes; export the graph with --opset {opset}"
        )
    try:
        converted: onnx.ModelProto = version_converter.convert_version(model, opset)
    except Exception as error:  # the converter's errors share no base
        raise ExportError(
            f"{encoder.path}: has operators of opset {version}, which cannot be converted to "
            f"{opset}; export the graph with --opset {opset}"
        ) from error
    return converted


def _traced(
    tail: nn.Module, encoder: GraphEncoder, path: Path, opset: int, output: str
) -> onnx.ModelProto:
    hidden = torch.rand(2, 8, int(encoder.config.hidden_size))
    if encoder.roles.pooled:
        hidden = hidden[:, 0]
    axes = {0: "batch", 1: "tokens"}
    with torch.no_grad():
        torch.onnx.export(
            _Scope(tail),
            (hidden, torch.ones(2, 8, dtype=torch.int64)),
            path,
            input_names=["hidden", "mask"],
            output_names=[output],
            dynamic_axes={"hidden": {0: "batch"} if encoder.roles.pooled else axes, "mask": axes}
            | {output: {0: "batch"}},
            opset_version=opset,
            dynamo=False,
        )
    prefixed: onnx.ModelProto = compose.add_prefix(
        onnx.load(path),
        "tail/",
        rename_nodes=False,
        rename_edges=True,
        rename_inputs=False,
        rename_outputs=False,
        rename_initializers=True,
    )
    return prefixed


class _Scope(nn.Module):
    def __init__(self, tail: nn.Module) -> None:
        super().__init__()
        self.tail = tail

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """Names the nodes of the tail ``/tail/…``."""
        vectors: Tensor = self.tail(hidden, mask)
        return vectors


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


def write_graph(source: Checkpoint, path: Path) -> None:
    """Write ``source`` as an fp32 ONNX file with dynamic batch and tokens.

    Raises:
        ExportError: the source is a graph with operators that cannot be converted.
    """
    if isinstance(source, PairSource):
        _write_pair_graph(source, path)
        return
    encoder = source.encoder
    if isinstance(encoder, GraphEncoder):
        write_joined(encoder, source, path)
        return
    module = SentenceEncoder(source).eval()
    ids = torch.tensor([source.tokenizer(text)["input_ids"] for text in ("a b c d", "d c b a")])
    long = source.encoder.config.model_type == attention.LONG_MODEL_TYPE
    traced = attention.traced_as_operators(source.encoder) if long else nullcontext()
    rotations = tabled_rotations(source.encoder, source.max_tokens)
    buckets = tabled_buckets(source.encoder, source.max_tokens)
    with traced, rotations, buckets:
        trace(module, ids, path, OUTPUT, {attention.LONG_DOMAIN: 1} if long else None)
    if long:
        attention.define(path, source.encoder.config, OPSET)


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


LOGITS = "logits"


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


def _write_pair_graph(source: PairSource, path: Path) -> None:
    """Write ``source`` as an fp32 ONNX file with dynamic batch and tokens.

    The nodes behind the encoder get names below ``/tail/``, so they stay in fp32 as the pooling of
    an encoder does.
    """
    module = PairScorer(source).eval()
    ids = torch.tensor([source.tokenizer(*pair)["input_ids"] for pair in (("a", "b"), ("b", "a"))])
    rotations = tabled_rotations(source.base, source.max_tokens)
    buckets = tabled_buckets(source.base, source.max_tokens)
    with rotations, buckets:
        trace(module, ids, path, LOGITS)
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
