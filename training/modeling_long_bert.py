"""A BERT encoder for long texts: sliding-window attention with a global first token.

The training copies this file into the folder of every extended model. ``AutoModel`` and
``SentenceTransformer`` then open the folder with ``trust_remote_code=True`` even if this package
is not installed. The file therefore imports only torch and transformers.

Each token attends to the ``attention_window`` tokens on either side and to the first token; the
first token attends to all tokens, and all tokens attend to it (Beltagy et al. 2020, "Longformer",
section 3.1). Local and global attention share their projections as in BigBird, unlike in
Longformer. The attention is exact. It is computed in blocks: the queries of one window against the
keys of three. The cost is linear in the length, no control flow depends on data, and the graph
exports with dynamic batch and length. (The code uses ``reshape`` with explicit shapes because
tracing would freeze those of ``unflatten``.)
"""

from typing import Any, cast

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from torch import Tensor, nn
from transformers import BertConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput
from transformers.models.bert.modeling_bert import BertIntermediate, BertOutput, BertSelfOutput

# transformers leaves these unannotated; modules return Any when they are called.
# mypy: allow-untyped-calls, disable-error-code="no-any-return"


class LongBertConfig(BertConfig):
    """BERT's configuration, the attention window, and the offset of the position table."""

    model_type = "docsplit_long_bert"

    def __init__(self, position_offset: int = 0, attention_window: int = 512, **sizes: Any) -> None:
        """Set the sizes of ``BertConfig``, and those of the long model.

        Args:
            position_offset: row of the first token's position (RoBERTa: padding id + 1).
            attention_window: tokens that a token sees on either side.
            sizes: passed on to ``BertConfig``; its defaults are those of BERT-base.
        """
        super().__init__(**sizes)
        self.position_offset = position_offset
        self.attention_window = attention_window


def dense_attention(q: Tensor, k: Tensor, v: Tensor, valid: Tensor, dropout: float) -> Tensor:
    """Attention of every token to every token.

    Args:
        q: float ``[batch, heads, queries, head width]``.
        k: float ``[batch, heads, tokens, head width]``.
        v: like ``k``.
        valid: bool ``[batch, tokens]``, false for padding.
        dropout: probability.

    Returns:
        float like ``q``.
    """
    return F.scaled_dot_product_attention(q, k, v, valid[:, None, None, :], dropout)


def blocked_attention(
    q: Tensor, k: Tensor, v: Tensor, valid: Tensor, window: int, dropout: float
) -> Tensor:
    """Exact sliding-window attention with a global first token.

    Args:
        q: float ``[batch, heads, tokens, head width]``.
        k: like ``q``.
        v: like ``q``.
        valid: bool ``[batch, tokens]``, false for padding; the first token must be valid.
        window: tokens that a token sees on either side.
        dropout: probability.

    Returns:
        float like ``q``; rows of padding tokens have no meaning.
    """
    tokens = q.shape[2]
    qb = _blocks(q, window)
    kb = _neighbours(_blocks(k, window))
    vb = _neighbours(_blocks(v, window))
    # The first token is an extra key of every block; the band leaves it out.
    banded = torch.cat([torch.zeros_like(valid[:, :1]), valid[:, 1:]], 1)
    seen = _neighbours(_blocks(banded[:, None, :, None], window)).squeeze(1).squeeze(-1)
    blocks = qb.shape[2]
    kb = torch.cat([kb, k[:, :, None, :1].expand(-1, -1, blocks, -1, -1)], 3)
    vb = torch.cat([vb, v[:, :, None, :1].expand(-1, -1, blocks, -1, -1)], 3)
    place = torch.arange(window, device=q.device)[:, None]
    other = torch.arange(3 * window, device=q.device)[None, :] - window
    band = (place - other).abs() <= window
    allowed = seen[:, :, None, :] & band
    allowed = torch.cat([allowed, valid[:, None, None, :1].expand(-1, blocks, window, -1)], 3)
    local = F.scaled_dot_product_attention(
        _merge(qb), _merge(kb), _merge(vb), allowed.flatten(0, 1)[:, None], dropout
    )
    batch, heads, _, width = q.shape
    local = local.reshape(batch, blocks, heads, window, width).transpose(1, 2)
    local = local.reshape(batch, heads, -1, width)[:, :, 1:tokens]
    return torch.cat([dense_attention(q[:, :, :1], k, v, valid, dropout), local], 2)


def _blocks(x: Tensor, window: int) -> Tensor:
    """``[batch, heads, tokens, width]`` to ``[batch, heads, blocks, window, width]``.

    Zeros fill the last block. Padding before cutting keeps dimensions that may be zero out of the
    graph.
    """
    blocks = (x.shape[2] + window - 1) // window
    filled = torch.cat([x, torch.zeros_like(x[:, :, :1]).expand(-1, -1, window, -1)], 2)
    filled = filled[:, :, : blocks * window]
    return filled.reshape(x.shape[0], x.shape[1], blocks, window, x.shape[3])


def _neighbours(x: Tensor) -> Tensor:
    """Each block joined with the blocks before and after it; zeros beyond the ends."""
    nothing = torch.zeros_like(x[:, :, :1])
    before = torch.cat([nothing, x[:, :, :-1]], 2)
    after = torch.cat([x[:, :, 1:], nothing], 2)
    return torch.cat([before, x, after], 3)


def _merge(x: Tensor) -> Tensor:
    """``[batch, heads, blocks, n, width]`` to ``[batch * blocks, heads, n, width]``."""
    return x.transpose(1, 2).flatten(0, 1)


class _Embeddings(nn.Module):
    def __init__(self, config: LongBertConfig) -> None:
        super().__init__()
        width = config.hidden_size
        self.offset = config.position_offset
        self.word_embeddings = nn.Embedding(
            config.vocab_size, width, padding_idx=config.pad_token_id
        )
        self.position_embeddings = nn.Embedding(config.max_position_embeddings, width)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, width)
        self.LayerNorm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, input_ids: Tensor, token_type_ids: Tensor | None) -> Tensor:
        rows = torch.arange(input_ids.shape[1], device=input_ids.device) + self.offset
        if token_type_ids is None:
            token_type_ids = torch.zeros_like(input_ids)
        states = self.word_embeddings(input_ids) + self.token_type_embeddings(token_type_ids)
        return self.dropout(self.LayerNorm(states + self.position_embeddings(rows)))


class _SelfAttention(nn.Module):
    def __init__(self, config: LongBertConfig) -> None:
        super().__init__()
        width = config.hidden_size
        self.heads = config.num_attention_heads
        self.width = width // self.heads
        self.window = config.attention_window
        self.dropout = config.attention_probs_dropout_prob
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)

    def forward(self, states: Tensor, valid: Tensor, *, dense: bool) -> Tensor:
        q, k, v = (
            part(states)
            .reshape(states.shape[0], states.shape[1], self.heads, self.width)
            .transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        dropout = self.dropout if self.training else 0.0
        if dense:
            mixed = dense_attention(q, k, v, valid, dropout)
        else:
            mixed = blocked_attention(q, k, v, valid, self.window, dropout)
        return mixed.transpose(1, 2).flatten(2)


class _Attention(nn.Module):
    def __init__(self, config: LongBertConfig) -> None:
        super().__init__()
        self.self = _SelfAttention(config)
        self.output = BertSelfOutput(config)

    def forward(self, states: Tensor, valid: Tensor, *, dense: bool) -> Tensor:
        return self.output(self.self(states, valid, dense=dense), states)


class _Layer(nn.Module):
    def __init__(self, config: LongBertConfig) -> None:
        super().__init__()
        self.attention = _Attention(config)
        self.intermediate = BertIntermediate(config)
        self.output = BertOutput(config)

    def forward(self, states: Tensor, valid: Tensor, *, dense: bool) -> Tensor:
        attended = self.attention(states, valid, dense=dense)
        return self.output(self.intermediate(attended), attended)


class _Encoder(nn.Module):
    def __init__(self, config: LongBertConfig) -> None:
        super().__init__()
        self.layer = nn.ModuleList([_Layer(config) for _ in range(config.num_hidden_layers)])


class LongBertModel(PreTrainedModel):
    """The encoder. Its parameters have the same names as those of ``BertModel``."""

    config_class = LongBertConfig
    base_model_prefix = "bert"

    def __init__(self, config: LongBertConfig) -> None:
        """Initialise the weights for ``config``."""
        super().__init__(config)
        self.embeddings = _Embeddings(config)
        self.encoder = _Encoder(config)
        self.post_init()

    def get_input_embeddings(self) -> nn.Embedding:
        """The token table."""
        return self.embeddings.word_embeddings

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replace the token table."""
        self.embeddings.word_embeddings = cast(nn.Embedding, value)

    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=self.config.initializer_range)
        if isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)
        if isinstance(module, nn.LayerNorm):
            nn.init.ones_(module.weight)
            nn.init.zeros_(module.bias)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        return_dict: bool | None = None,
        **_: Any,
    ) -> BaseModelOutput | tuple[Tensor]:
        """Hidden states of the last layer.

        Args:
            input_ids: int64 ``[batch, tokens]``, padded on the right.
            attention_mask: ``[batch, tokens]``, zero for padding.
            token_type_ids: ``[batch, tokens]``; zeros where absent.
            return_dict: false for a plain tuple.

        Returns:
            ``last_hidden_state`` float ``[batch, tokens, hidden]``.
        """
        if attention_mask is None:
            attention_mask = torch.ones_like(input_ids)
        valid = attention_mask != 0
        # If every token sees every other, dense attention gives the same result at a lower cost.
        # An exported graph must hold the blocked form, whatever the length of the traced input.
        tracing = torch.jit.is_tracing()  # type: ignore[attr-defined]
        exporting = tracing or torch.compiler.is_compiling()
        dense = not exporting and input_ids.shape[1] <= self.config.attention_window + 1
        states = self.embeddings(input_ids, token_type_ids)
        for layer in self.encoder.layer:
            states = layer(states, valid, dense=dense)
        if return_dict is False:
            return (states,)
        return BaseModelOutput(last_hidden_state=states)
