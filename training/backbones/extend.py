"""Extend a BERT-like checkpoint to longer inputs."""

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModel, PreTrainedModel

from training.backbones.modeling_long_bert import LongBertConfig, LongBertModel
from training.errors import SettingsError

_BERT = {"bert"}
_ROBERTA = {"roberta", "xlm-roberta", "camembert"}
_SIZES = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "hidden_act",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "type_vocab_size",
    "initializer_range",
    "layer_norm_eps",
    "pad_token_id",
)

AutoConfig.register(LongBertConfig.model_type, LongBertConfig, exist_ok=True)
AutoModel.register(LongBertConfig, LongBertModel, exist_ok=True)
LongBertConfig.register_for_auto_class()  # type: ignore[no-untyped-call]
LongBertModel.register_for_auto_class("AutoModel")  # type: ignore[no-untyped-call]


def extend(short: PreTrainedModel, max_tokens: int, window: int | None = None) -> LongBertModel:
    """A long model with the weights of a short one.

    Args:
        short: a BERT or RoBERTa encoder with absolute positions.
        max_tokens: longest input of the long model, special tokens included.
        window: tokens that a token sees on either side; default the short model's longest input.
            Both models give the same states, up to float32 rounding, for texts of up to
            ``window + 1`` tokens that the short model can read.

    Raises:
        SettingsError: the model has another architecture or relative positions, or reads
            ``max_tokens`` already.
    """
    config = short.config
    kind = config.model_type
    if kind not in _BERT | _ROBERTA:
        raise SettingsError(
            f"backbone.extend_to: cannot extend a {kind} model; "
            f"choose one of {', '.join(sorted(_BERT | _ROBERTA))}"
        )
    if getattr(config, "position_embedding_type", "absolute") not in ("absolute", None):
        raise SettingsError("backbone.extend_to: the checkpoint has no absolute positions to copy")
    offset = config.pad_token_id + 1 if kind in _ROBERTA else 0
    short_tokens = config.max_position_embeddings - offset
    if max_tokens <= short_tokens:
        raise SettingsError(
            f"backbone.extend_to: {max_tokens} must be more than the {short_tokens} tokens that "
            "the checkpoint reads already"
        )
    long_config = LongBertConfig(
        **{name: getattr(config, name) for name in _SIZES},
        max_position_embeddings=max_tokens + offset,
        position_offset=offset,
        attention_window=window or short_tokens,
    )
    long = LongBertModel(long_config)
    weights = {
        name: tensor
        for name, tensor in short.state_dict().items()
        if not name.startswith("pooler.") and not name.endswith(("position_ids", "token_type_ids"))
    }
    table = "embeddings.position_embeddings.weight"
    weights[table] = tile_positions(weights[table], offset, max_tokens)
    long.load_state_dict(weights)
    return long


def tile_positions(table: Tensor, offset: int, tokens: int) -> Tensor:
    """Extend a position table by repeating it.

    Beltagy et al. 2020, "Longformer", section 5: copies keep the local structure. Training
    therefore begins close to the short model, except at the borders between copies.

    Args:
        table: float ``[offset + short tokens, width]``.
        offset: rows at the beginning that represent no position.
        tokens: positions of the result.

    Returns:
        float ``[offset + tokens, width]``.
    """
    positions = table[offset:]
    copies = -(-tokens // len(positions))
    return torch.cat([table[:offset], positions.repeat(copies, 1)[:tokens]])
