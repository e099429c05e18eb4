"""A frozen encoder whose vectors teach another one."""

from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from training.backbones.encoder import Encoder, Start, open_start
from training.errors import SettingsError
from training.settings import Settings

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
