"""Attention and positions in forms that a trace keeps exactly."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
import onnx.inliner
import onnx.parser
import torch
from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel
from transformers.models.deberta_v2 import modeling_deberta_v2

from export.errors import ExportError

# Rotary positions as tables.
#
# Without tables, a graph would compute angles in its own precision. In bf16, position 301
# becomes 300 or 302. In fp16, angles beyond position 2,048 are wrong by up to a radian and
# more.

# Scalings with frequencies that do not depend on the length of the text.
ROPE_TYPES = ("default", "linear", "llama3", "yarn")
# Services pad windows to multiples of a few tokens, perhaps beyond the longest window.
_ROUND = 64
_SHARED = "shared"


class RotationTables(nn.Module):
    """Cosines and sines of positions below ``tokens``, as ``rotary`` computes them in fp32.

    Args:
        rotary: the encoder's module.
        layer_types: kinds of layers with rotations of their own; empty if all layers share one.
        tokens: number of positions.
    """

    def __init__(self, rotary: nn.Module, layer_types: list[str], tokens: int) -> None:
        super().__init__()
        positions = torch.arange(tokens).unsqueeze(0)
        for kind in layer_types or [_SHARED]:
            found = rotary(torch.zeros(1), positions, *([kind] if layer_types else []))
            for name, table in zip(("cos", "sin"), found, strict=True):
                self.register_buffer(f"{kind}_{name}", table[0])

    def forward(
        self, x: Tensor, position_ids: Tensor, layer_type: str = "shared"
    ) -> tuple[Tensor, Tensor]:
        """``position_ids`` int64 ``[1, tokens]`` → cosines and sines, float32
        ``[1, tokens, head]``."""
        cos, sin = (cast(Tensor, getattr(self, f"{layer_type}_{name}")) for name in ("cos", "sin"))
        return cos[position_ids], sin[position_ids]


def positions_of(tokens: int) -> int:
    """Positions of a table for windows of ``tokens``, and for their padding."""
    return -(-tokens // _ROUND) * _ROUND


def check_rotations(encoder: PreTrainedModel, source: str) -> None:
    """Refuse a scaling that a table cannot represent.

    Raises:
        ExportError: the angles of a position depend on the text's length.
    """
    if not hasattr(encoder, "rotary_emb"):
        return
    parameters: dict[str, Any] = cast(Any, encoder.config).rope_parameters
    kinds = parameters if "rope_type" not in parameters else {"all layers": parameters}
    for kind, settings in kinds.items():
        rope = settings["rope_type"]
        if rope not in ROPE_TYPES:
            raise ExportError(
                f"{source}: rope_type {rope} of {kind} is unsupported, because it changes with the "
                f"text's length; {', '.join(ROPE_TYPES)} are supported"
            )


@contextmanager
def tabled_rotations(encoder: PreTrainedModel, tokens: int) -> Iterator[None]:
    """In this context ``encoder`` reads its rotations from tables for windows of ``tokens``.

    Encoders without rotary positions do not change.
    """
    if not hasattr(encoder, "rotary_emb"):
        yield
        return
    rotary = cast(nn.Module, encoder.rotary_emb)
    by_kind = "layer_type" in inspect.signature(rotary.forward).parameters
    kinds = sorted(set(cast(Any, encoder.config).layer_types)) if by_kind else []
    with torch.no_grad():
        encoder.rotary_emb = RotationTables(rotary, kinds, positions_of(tokens))
    try:
        yield
    finally:
        encoder.rotary_emb = rotary


# Relative positions as tables.
#
# MPNet and DeBERTa put the distance of two tokens into a bucket by its logarithm (Raffel et al.
# 2020, arXiv:1910.10683, section 2.1). A graph would compute it in its own precision, and the
# attention would read the wrong bias. With the divisor in fp16, the distances 16, 32 and 64 of
# MPNet fall into another bucket; in bf16, so do 73 of the 383 distances of DeBERTa-v3 that
# share buckets.

_Bucket = Callable[..., Tensor]
# the names of the function in transformers
_MPNET = "relative_position_bucket"
_DEBERTA = "make_log_bucket_position"


@contextmanager
def tabled_buckets(encoder: PreTrainedModel, tokens: int) -> Iterator[None]:
    """In this context ``encoder`` reads its buckets from tables for windows of ``tokens``.

    Encoders without such buckets do not change.
    """
    size = positions_of(tokens)
    with ExitStack() as restored:
        for module in encoder.modules():
            if bucket := getattr(module, _MPNET, None):
                setattr(module, _MPNET, _tabled(bucket, size))
                restored.callback(delattr, module, _MPNET)
        if encoder.config.model_type == "deberta-v2":
            bucket = modeling_deberta_v2.make_log_bucket_position
            setattr(modeling_deberta_v2, _DEBERTA, _tabled(bucket, size))
            restored.callback(setattr, modeling_deberta_v2, _DEBERTA, bucket)
        yield


def _tabled(bucket: _Bucket, tokens: int) -> _Bucket:
    """``bucket`` as a table of the distances below ``tokens``."""

    def read(distances: Tensor, *settings: int, **named: int) -> Tensor:
        """``distances`` int64 of any shape → buckets int64 of this shape."""
        found = bucket(torch.arange(1 - tokens, tokens), *settings, **named)
        # a trace does not follow values through NumPy, so it keeps the table
        table = torch.from_numpy(found.numpy().astype(np.int64))
        return table[distances + (tokens - 1)]

    return read


# Sliding-window attention with a global first token, as ONNX.
#
# In long checkpoints of the training each token attends to ``window`` tokens on either side and
# to the first token, which attends to all (Beltagy et al. 2020, "Longformer", section 3.1). A
# direct trace of this attention would use three windows of keys even for a query of ten words.
# The export therefore traces it as one operator and then defines this operator in standard
# operators. The definition uses dense attention if every token reaches every other, otherwise
# blocks of queries. Time and memory thus grow with the length, not with its square.

LONG_MODEL_TYPE = "docsplit_long_bert"
LONG_DOMAIN = "docsplit"
OPERATOR = "LongAttention"
# Added to a score, it makes the weight zero in both fp32 and fp16.
_NEVER = -5_000.0


@contextmanager
def traced_as_operators(encoder: PreTrainedModel) -> Iterator[None]:
    """Make tracing write one ``docsplit.LongAttention`` for the attention of each layer.

    Vectors computed in this context have no meaning.
    """
    layers = [layer.attention for layer in cast(Any, encoder).encoder.layer]
    held = [layer.self for layer in layers]
    for layer in layers:
        layer.self = _Placeholder(layer.self)
    try:
        yield
    finally:
        for layer, attention in zip(layers, held, strict=True):
            layer.self = attention


def define(path: Path, config: PretrainedConfig, opset: int) -> None:
    """Replace each ``docsplit.LongAttention`` of an ONNX file by standard operators.

    Args:
        path: the file to change.
        config: has ``attention_window``, ``num_attention_heads`` and ``hidden_size``.
        opset: version of the ONNX operators in the file.
    """
    model = onnx.load(path)
    window = config.attention_window
    width = config.hidden_size // config.num_attention_heads
    text = _definition(window, config.num_attention_heads, width, opset)
    model.functions.append(onnx.parser.parse_function(text))
    model = onnx.inliner.inline_local_functions(model)
    kept = [entry for entry in model.opset_import if entry.domain != LONG_DOMAIN]
    del model.opset_import[:]
    model.opset_import.extend(kept)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path)


class _Placeholder(nn.Module):
    def __init__(self, attention: Any) -> None:
        super().__init__()
        self.query, self.key, self.value = attention.query, attention.key, attention.value

    def forward(self, states: Tensor, valid: Tensor, *, dense: bool) -> Tensor:
        mixed: Tensor = _Operator.apply(  # type: ignore[no-untyped-call]
            self.query(states), self.key(states), self.value(states), valid
        )
        return mixed


class _Operator(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, valid: Tensor) -> Tensor:
        return q.clone()

    @staticmethod
    def symbolic(graph: Any, q: Any, k: Any, v: Any, valid: Any) -> Any:
        return graph.op(f"{LONG_DOMAIN}::{OPERATOR}", q, k, v, valid).setType(q.type())


def _definition(window: int, heads: int, width: int, opset: int) -> str:
    """The operator in ONNX's textual syntax.

    Inputs ``q``, ``k``, ``v`` float ``[batch, tokens, heads * width]`` and ``valid`` bool
    ``[batch, tokens]``; output like ``q``. A block of queries is half a window long. It attends to
    the first token and to all keys in its reach. Positions beyond the ends hold copies of other
    tokens, which the bias hides.
    """
    block = -(-window // 2)
    reach = 2 * window + block
    hidden = heads * width
    return f"""
<domain: "{LONG_DOMAIN}", opset_import: ["": {opset}]>
{OPERATOR} (q, k, v, valid) => (mixed) {{
  zero = Constant <value = int64 {{0}}> ()
  one = Constant <value = int64 {{1}}> ()
  at_0 = Constant <value = int64[1] {{0}}> ()
  at_1 = Constant <value = int64[1] {{1}}> ()
  shape = Shape (q)
  tokens = Gather (shape, one)
  most = Constant <value = int64 {{{window + 1}}}> ()
  short = LessOrEqual (tokens, most)
  heads_and_queries = Constant <value = int64[2] {{1, 2}}> ()
  valid_keys = Unsqueeze (valid, heads_and_queries)
  seen = Constant <value = float {{0.0}}> ()
  never = Constant <value = float {{{_NEVER}}}> ()
  padding = Where (valid_keys, seen, never)
  mixed = If (short) <
    then_branch = dense () => (dense_mixed) {{
      {_attention("dense", "q", "k", "v", "padding", heads, width)}
    }},
    else_branch = blocked () => (all_mixed) {{
      size = Constant <value = int64 {{{block}}}> ()
      size_less_1 = Constant <value = int64 {{{block - 1}}}> ()
      reach_begin = Constant <value = int64 {{{-window}}}> ()
      reach_end = Constant <value = int64 {{{window + block}}}> ()
      window = Constant <value = int64 {{{window}}}> ()
      last = Sub (tokens, one)
      filled = Add (tokens, size_less_1)
      blocks = Div (filled, size)
      numbers = Range (zero, blocks, one)
      flat_starts = Mul (numbers, size)
      starts = Unsqueeze (flat_starts, at_1)
      query_offsets = Range (zero, size, one)
      query_places = Add (starts, query_offsets)
      query_index = Min (query_places, last)
      key_offsets = Range (reach_begin, reach_end, one)
      key_places = Add (starts, key_offsets)
      not_beyond = Min (key_places, last)
      near_index = Max (not_beyond, zero)
      first_index = Mul (starts, zero)
      key_index = Concat <axis = 1> (first_index, near_index)
      after_first = Greater (key_places, zero)
      before_end = Less (key_places, tokens)
      near_exists = And (after_first, before_end)
      first_exists = Equal (first_index, zero)
      exists = Concat <axis = 1> (first_exists, near_exists)
      not_padding = Gather <axis = 1> (valid, key_index)
      usable = And (not_padding, exists)
      usable_bias = Where (usable, seen, never)
      per_block = Constant <value = int64[4] {{-1, 1, 1, {reach + 1}}}> ()
      block_bias = Reshape (usable_bias, per_block)
      query_column = Unsqueeze (query_offsets, at_1)
      difference = Sub (key_offsets, query_column)
      distance = Abs (difference)
      in_window = LessOrEqual (distance, window)
      near_bias = Where (in_window, seen, never)
      first_column = Constant <value = int64[2] {{{block}, 1}}> ()
      first_bias = Expand (seen, first_column)
      band = Concat <axis = 1> (first_bias, near_bias)
      bias = Add (block_bias, band)
      query_blocks = Constant <value = int64[3] {{-1, {block}, {hidden}}}> ()
      key_blocks = Constant <value = int64[3] {{-1, {reach + 1}, {hidden}}}> ()
      q_taken = Gather <axis = 1> (q, query_index)
      k_taken = Gather <axis = 1> (k, key_index)
      v_taken = Gather <axis = 1> (v, key_index)
      q_blocks = Reshape (q_taken, query_blocks)
      k_blocks = Reshape (k_taken, key_blocks)
      v_blocks = Reshape (v_taken, key_blocks)
      {_attention("local", "q_blocks", "k_blocks", "v_blocks", "bias", heads, width)}
      batch = Gather (shape, at_0)
      rest = Constant <value = int64[2] {{-1, {hidden}}}> ()
      joined_shape = Concat <axis = 0> (batch, rest)
      joined = Reshape (local_mixed, joined_shape)
      end = Unsqueeze (tokens, at_0)
      local = Slice (joined, at_1, end, at_1)
      q_first = Slice (q, at_0, at_1, at_1)
      {_attention("global", "q_first", "k", "v", "padding", heads, width)}
      all_mixed = Concat <axis = 1> (global_mixed, local)
    }}
  >
}}"""


def _attention(name: str, q: str, k: str, v: str, bias: str, heads: int, width: int) -> str:
    """Multi-head attention (Vaswani et al. 2017, section 3.2) of ``q`` on ``k`` and ``v``, in the
    form that runtimes fuse; the result is ``<name>_mixed``."""
    return f"""
      {name}_split = Constant <value = int64[4] {{0, 0, {heads}, {width}}}> ()
      {name}_joined = Constant <value = int64[3] {{0, 0, {heads * width}}}> ()
      {name}_scale = Constant <value = float {{{width**-0.5!r}}}> ()
      {name}_q_split = Reshape ({q}, {name}_split)
      {name}_k_split = Reshape ({k}, {name}_split)
      {name}_v_split = Reshape ({v}, {name}_split)
      {name}_q_heads = Transpose <perm = [0, 2, 1, 3]> ({name}_q_split)
      {name}_k_heads = Transpose <perm = [0, 2, 3, 1]> ({name}_k_split)
      {name}_v_heads = Transpose <perm = [0, 2, 1, 3]> ({name}_v_split)
      {name}_products = MatMul ({name}_q_heads, {name}_k_heads)
      {name}_scaled = Mul ({name}_products, {name}_scale)
      {name}_scores = Add ({name}_scaled, {bias})
      {name}_weights = Softmax <axis = -1> ({name}_scores)
      {name}_sum = MatMul ({name}_weights, {name}_v_heads)
      {name}_tokens = Transpose <perm = [0, 2, 1, 3]> ({name}_sum)
      {name}_mixed = Reshape ({name}_tokens, {name}_joined)"""
