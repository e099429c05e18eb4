"""Load start weights as an encoder with pooling."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, AutoTokenizer, PreTrainedTokenizerBase
from transformers.utils.hub import cached_file

from export.requirements import absence, positions
from training.backbones.dropout import SHARES, install
from training.backbones.extend import extend
from training.backbones.static import StaticBackbone
from training.errors import SettingsError
from training.settings import BackboneSettings

Pooling = Literal["mean", "cls"]
_MODES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
# modules of sentence-transformers after which a vector has the direction that the training gives it
_KNOWN = {"Transformer", "Pooling", "Normalize", "Dropout"}


class Encoder(nn.Module):
    """A transformers encoder that pools its states into one vector."""

    backbone: Any  # nn.Module's own annotations make every attribute a Tensor or a Module

    def __init__(self, backbone: nn.Module, pooling: Pooling) -> None:
        """Pool the states of ``backbone``."""
        super().__init__()
        self.backbone = backbone
        self.pooling = pooling

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor]:
        """States and vectors.

        Args:
            input_ids: int64 ``[batch, tokens]``.
            attention_mask: int64 ``[batch, tokens]``, zero for padding.

        Returns:
            float ``[batch, tokens, width]`` and float32 ``[batch, width]``, not normalised.
        """
        states = self.backbone(input_ids=input_ids, attention_mask=attention_mask)[0]
        return states, pool(states, attention_mask, self.pooling)


def pool(states: Tensor, attention_mask: Tensor, pooling: Pooling) -> Tensor:
    """One float32 vector for each text: the mean of its tokens' states, or the first token's.

    Args:
        states: float ``[batch, tokens, width]``.
        attention_mask: ``[batch, tokens]``, zero for padding.
        pooling: ``mean``, special tokens included as in sentence-transformers, or ``cls``
            (DocSplit, section 2.1).
    """
    if pooling == "cls":
        return states[:, 0].float()
    mask = attention_mask[:, :, None].to(states.dtype)
    total = (states * mask).float().sum(1)
    return total / attention_mask.sum(1, keepdim=True)


@dataclass(frozen=True)
class Start:
    """Loaded start weights.

    Attributes:
        encoder: the model, float32.
        tokenizer: its fast tokenizer.
        head_weights: tensors of the masked LM head, if the checkpoint has one.
    """

    encoder: Encoder
    tokenizer: PreTrainedTokenizerBase
    head_weights: dict[str, Tensor]


def open_start(settings: BackboneSettings, *, trained: bool = True) -> Start:
    """Open start weights, or a teacher.

    Args:
        settings: their place, and how the training uses them.
        trained: whether they are the start weights, whose messages name what to set.

    Raises:
        SettingsError: the path holds no model or no fast tokenizer, the model has fewer positions
            than ``max_tokens``, or it changes its pooled vectors.
    """
    options: dict[str, Any] = {
        "revision": settings.revision,
        "trust_remote_code": settings.trust_remote_code,
    }
    named = f"{'backbone.path' if trained else 'objective.teacher'} {settings.path!r}"
    reason = absence(settings.path)
    if reason is not None:
        raise SettingsError(f"{named}: {reason}")
    try:
        config = AutoConfig.from_pretrained(settings.path, **options)
        _override_dropout(config, settings)
        backbone = AutoModel.from_pretrained(settings.path, config=config, **options).float()
        tokenizer = AutoTokenizer.from_pretrained(settings.path, **options)
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise SettingsError(f"{named}: {reason}") from error
    if not tokenizer.is_fast:
        raise SettingsError(f"{named}: no fast tokenizer (tokenizer.json)")
    if settings.extend_to:
        backbone = extend(backbone, settings.extend_to, settings.attention_window)
        tokenizer.model_max_length = settings.extend_to
    limit = positions(backbone, tokenizer)
    if limit is not None and settings.max_tokens > limit:
        remedy = "set backbone.extend_to" if trained else "name another teacher"
        raise SettingsError(
            f"backbone.max_tokens: {settings.max_tokens} is more than the {limit} positions of "
            f"{named} (lower it, or {remedy})"
        )
    if settings.static_width is not None:
        table = StaticBackbone(tokenizer, settings.static_width)
        return Start(Encoder(table, "mean"), tokenizer, {})
    if trained:
        install(backbone)
    return Start(
        Encoder(backbone, _pooling(settings, named, trained)),
        tokenizer,
        _masked_lm_weights(settings),
    )


def _override_dropout(config: Any, settings: BackboneSettings) -> None:
    for setting, names in (
        ("dropout", ("hidden_dropout_prob", "dropout", "embedding_dropout", "mlp_dropout")),
        ("attention_dropout", SHARES),
    ):
        value = getattr(settings, setting)
        if value is None:
            continue
        present = [name for name in names if hasattr(config, name)]
        if not present and setting in settings.model_fields_set:
            raise SettingsError(
                f"backbone.{setting}: a {config.model_type} model has no {', '.join(names)}"
            )
        for name in present:
            setattr(config, name, value)


def _pooling(settings: BackboneSettings, named: str, trained: bool) -> Pooling:
    if settings.pooling != "auto":
        return settings.pooling
    further = _further_modules(settings)
    if further:
        remedy = "; to go on from its transformer only, set backbone.pooling to mean or cls"
        raise SettingsError(
            f"{named} computes its vectors by {', '.join(further)} too, which the training leaves "
            f"out{remedy if trained else ''}"
        )
    path = _file(settings, "1_Pooling/config.json")
    if path is None:
        return "mean"
    held = json.loads(Path(path).read_text(encoding="utf-8"))
    # sentence-transformers 6 names the mode; earlier versions set one of several flags.
    flags = [name for name, value in held.items() if name in _MODES and value is True]
    mode = held.get("pooling_mode") or " + ".join(_MODES[name] for name in flags) or "mean"
    if mode == "cls":
        return "cls"
    # the same direction, and vectors have unit length
    if mode in ("mean", "mean_sqrt_len_tokens"):
        return "mean"
    remedy = ", which backbone.pooling chooses" if trained else ""
    raise SettingsError(f"{named} pools by {mode}; the training pools by mean or cls{remedy}")


def _further_modules(settings: BackboneSettings) -> list[str]:
    """Modules of the start weights that change the direction of a pooled vector."""
    path = _file(settings, "modules.json")
    if path is None:
        return []
    listed = json.loads(Path(path).read_text(encoding="utf-8"))
    kinds = [str(module["type"]).rpartition(".")[2] for module in listed]
    return [kind for kind in kinds if kind not in _KNOWN]


def _file(settings: BackboneSettings, name: str) -> str | None:
    """A file of the start weights, in their folder or from the hub."""
    found: str | None = cached_file(
        settings.path,
        name,
        revision=settings.revision,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
    )
    return found


def _masked_lm_weights(settings: BackboneSettings) -> dict[str, Tensor]:
    from safetensors import safe_open

    file = _file(settings, "model.safetensors")
    if file is None:
        return {}
    with safe_open(file, framework="pt") as held:
        names = held.keys()
        parts = ("cls.predictions", "lm_head", "head.", "decoder.bias", "vocab_")
        wanted = [name for name in names if name.startswith(parts)]
        return {name: held.get_tensor(name).to(torch.float32) for name in wanted}
