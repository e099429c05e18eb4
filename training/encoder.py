"""The trained encoder: start weights with pooling, long inputs, a table of tokens, and teachers."""

import json
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import load_file_path
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from export.errors import first_line
from export.requirements import absence, positions
from export.source import only_own_code
from training.dropout import SHARES, install
from training.errors import SettingsError
from training.modeling_long_bert import LongBertConfig, LongBertModel
from training.settings import BackboneSettings, Settings
from training.tokens import Numbers, TokenCache

# Extend a BERT-like checkpoint to longer inputs.

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


_SEED = 20_000
# Length of a start vector for each unit of inverse document frequency. The length decides how far
# a step of the optimiser turns a vector; this one fits a learning rate of .01.
_START = 0.2


class StaticBackbone(nn.Module):
    """One trainable vector for each token of a vocabulary, whatever its context.

    A token that occurs c times in a row of tokens counts 1 + log c times, as in TF-IDF with
    sublinear term frequencies (Manning, Raghavan and Schütze 2008, "Introduction to Information
    Retrieval", section 6.4.1). Special tokens do not count.

    The vectors start random, as long as their token's inverse document frequency. Random vectors
    are almost orthogonal, so the cosine of two texts starts near that of TF-IDF (Johnson and
    Lindenstrauss 1984).

    Attributes:
        config: only ``hidden_size``, which the trainer reads.
    """

    words: Tensor

    def __init__(self, tokenizer: PreTrainedTokenizerBase, width: int) -> None:
        """Vectors of ``width`` dimensions for the tokens of ``tokenizer``."""
        super().__init__()
        rng = torch.Generator().manual_seed(_SEED)
        start = torch.randn(len(tokenizer), width, generator=rng) / width**0.5
        self.table = nn.Embedding(len(tokenizer), width, _weight=start)
        words = torch.ones(len(tokenizer), dtype=torch.bool)
        words[tokenizer.all_special_ids] = False
        self.register_buffer("words", words, persistent=False)
        self.config = SimpleNamespace(hidden_size=width, model_type="static")

    @torch.no_grad()
    def weigh(self, cache: TokenCache, documents: Numbers) -> None:
        """Give the vectors the length of their tokens' inverse document frequency.

        The frequencies are those of at most 100,000 of the documents.

        Args:
            cache: the token cache.
            documents: numbers of the training documents.
        """
        chosen = documents[:: max(1, -(-len(documents) // 100_000))]
        found = np.zeros(len(self.words), dtype=np.int64)
        for document in chosen:
            found[np.unique(np.concatenate(cache.sentences(int(document))))] += 1
        # BM25's form: 0 for tokens of half of the documents and more
        idf = np.log((len(chosen) - found + 0.5) / (found + 0.5)).clip(min=0)
        self.table.weight.mul_(torch.from_numpy(_START * idf).float().unsqueeze(1))

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor]:
        """The weighted vectors of the tokens, float ``[batch, tokens, width]``. Their mean has the
        direction of the text's vector. Both arguments are int64 ``[batch, tokens]``."""
        counted = self.words[input_ids] & attention_mask.bool()
        row = torch.arange(len(input_ids), device=input_ids.device).unsqueeze(1)
        # equal only for the same token of the same row
        keys = torch.where(counted, input_ids + row * len(self.words), -1)
        _, place, count = torch.unique(keys, return_inverse=True, return_counts=True)
        repeated = count[place].float()
        weight = counted * (1 + repeated.log()) / repeated
        weighted: Tensor = self.table(input_ids) * weight.unsqueeze(-1)
        return (weighted,)

    def vectors(self) -> Tensor:
        """The tokens' vectors, float ``[tokens, width]``; zero for special tokens."""
        vectors: Tensor = self.table.weight.detach() * self.words.unsqueeze(1)
        return vectors.cpu()


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


def open_saved(path: str, *, trusted: bool = False, **options: Any) -> SentenceTransformer:
    """An encoder with its pooling and all further modules, float32.

    Args:
        path: folder or hub name.
        trusted: run modelling code in the folder; this project's own runs without it.
        **options: of ``SentenceTransformer``.

    Raises:
        SettingsError: it cannot be opened.
    """
    reason = absence(path)
    if reason is not None:
        raise SettingsError(f"{path}: {reason}")
    try:
        trusted = trusted or only_own_code(path)
        # transformers opens weights in their own precision
        return SentenceTransformer(path, trust_remote_code=trusted, **options).float()
    except (OSError, ValueError, KeyError) as error:
        raise SettingsError(
            f"{path}: not an encoder that sentence-transformers opens, here or on the hub "
            f"({first_line(error)})"
        ) from error


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
    path = load_file_path(settings.path, "1_Pooling/config.json", revision=settings.revision)
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
    path = load_file_path(settings.path, "modules.json", revision=settings.revision)
    if path is None:
        return []
    listed = json.loads(Path(path).read_text(encoding="utf-8"))
    kinds = [str(module["type"]).rpartition(".")[2] for module in listed]
    return [kind for kind in kinds if kind not in _KNOWN]


def _masked_lm_weights(settings: BackboneSettings) -> dict[str, Tensor]:
    from safetensors import safe_open

    file = load_file_path(settings.path, "model.safetensors", revision=settings.revision)
    if file is None:
        return {}
    with safe_open(file, framework="pt") as held:
        names = held.keys()
        parts = ("cls.predictions", "lm_head", "head.", "decoder.bias", "vocab_")
        wanted = [name for name in names if name.startswith(parts)]
        return {name: held.get_tensor(name).to(torch.float32) for name in wanted}


_SPECIAL = ("cls_token_id", "sep_token_id", "pad_token_id", "mask_token_id", "unk_token_id")


@dataclass(frozen=True)
class Teacher:
    """A frozen encoder that reads the token ids of the encoder that it teaches.

    Attributes:
        encoder: the encoder, in evaluation mode.
        ids: int64 ``[vocabulary]``, its id of each token of the taught encoder; None if they are
            the same.
    """

    encoder: Encoder
    ids: Tensor | None

    @property
    def width(self) -> int:
        """Dimensions of its vectors."""
        return int(self.encoder.backbone.config.hidden_size)

    @torch.no_grad()
    def vectors(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Its vectors, float32 ``[batch, width]``, of texts by the ids of the taught encoder.

        Both arguments are int64 ``[batch, tokens]``.
        """
        own = input_ids if self.ids is None else self.ids[input_ids]
        pooled: Tensor = self.encoder(own, attention_mask)[1]
        return pooled


def open_teachers(settings: Settings, start: Start, device: torch.device) -> list[Teacher]:
    """The teachers of the objective.

    Raises:
        SettingsError: a teacher cannot be opened, lacks tokens of the encoder, or has another
            width where the objective compares vectors.
    """
    return [_open(path, settings, start, device) for path in settings.objective.teacher]


def _open(path: str, settings: Settings, start: Start, device: torch.device) -> Teacher:
    named = f"objective.teacher {path!r}"
    asked = settings.backbone.model_copy(
        update={
            "path": path,
            "revision": None,
            "extend_to": None,
            "static_width": None,
            "pooling": "auto",
            # it never drops anything
            "dropout": None,
            "attention_dropout": None,
        }
    )
    opened = open_start(asked, trained=False)
    teacher = Teacher(
        opened.encoder.requires_grad_(False).eval().to(device),
        _ids(named, start.tokenizer, opened.tokenizer, device),
    )
    wanted = start.encoder.backbone.config.hidden_size
    if settings.objective.teacher_match == "vectors" and teacher.width != wanted:
        raise SettingsError(
            f"{named}: it has {teacher.width} dimensions, backbone.path has {wanted}; set "
            "objective.teacher_match to similarities"
        )
    return teacher


def _ids(
    named: str,
    taught: PreTrainedTokenizerBase,
    teacher: PreTrainedTokenizerBase,
    device: torch.device,
) -> Tensor | None:
    vocabulary, own = taught.get_vocab(), teacher.get_vocab()
    if vocabulary == own:
        return None
    found = torch.full((max(vocabulary.values()) + 1,), -1, dtype=torch.long)
    for token, number in vocabulary.items():
        found[number] = own.get(token, -1)
    # [CLS] of one is <s> of another
    for role in _SPECIAL:
        number, other = getattr(taught, role), getattr(teacher, role)
        if number is not None and other is not None:
            found[number] = other
    missing = sorted(token for token, number in vocabulary.items() if found[number] < 0)
    if missing:
        raise SettingsError(
            f"{named}: its vocabulary lacks {len(missing):,} of the {len(vocabulary):,} tokens of "
            f"backbone.path, such as {missing[-1]!r}"
        )
    return found.to(device)
