"""A sentence-transformers folder or hub name: a checkpoint of the training, or another encoder."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from training.data.chunks import plan_chunks
from training.data.sentences import split_sentences
from training.data.specials import Specials, whole_text_tokenizer
from training.errors import SettingsError
from training.evaluation.encoders.interface import Reading, Vectors
from training.losses.contrastive import pool_windows
from training.views.types import View
from training.views.windows import pack_windows

Offsets = npt.NDArray[np.int64]
_CPU_TOKENS = 2048
_DEVICE_TOKENS = 32_768


class FolderEncoder:
    """An encoder as ``SentenceTransformer(path)`` opens it, read whole by windows and their mean.

    Windows end where the next sentence no longer fits. A window that occurs twice among the texts
    of a call is computed once.

    Args:
        path: folder, or a name on the hub.
        name: as the report calls it.
        max_tokens: longest window, special tokens included; default what the folder says.
        trust_remote_code: run modelling code in the folder of the weights.

    Raises:
        SettingsError: nothing to open there, no fast tokenizer, or no window length.
    """

    def __init__(
        self,
        path: str,
        name: str,
        max_tokens: int | None = None,
        *,
        trust_remote_code: bool = False,
    ) -> None:
        from sentence_transformers import SentenceTransformer

        # registers the long backbone: its checkpoints open without running code from their folder
        import training.backbones.extend  # noqa: F401

        try:
            self._model = SentenceTransformer(path, trust_remote_code=trust_remote_code)
        except (OSError, ValueError, KeyError) as error:
            reason = str(error).strip().splitlines()[0]
            raise SettingsError(
                f"{path!r}: neither a bundle nor an encoder that sentence-transformers opens, here "
                f"or on the hub ({reason})"
            ) from None
        self._model.eval()
        tokenizer = self._model.tokenizer
        if not getattr(tokenizer, "is_fast", False):
            raise SettingsError(f"{path!r}: no fast tokenizer (tokenizer.json)")
        window = max_tokens or self._model.max_seq_length
        if window is None or window > 1_000_000:
            raise SettingsError(f"{path!r}: says no window length; give one with --max-tokens")
        self.name, self.kind = name, _kind(path)
        self._specials = Specials.of(tokenizer)
        self._tokenizer = whole_text_tokenizer(tokenizer)
        self._lead = self._prompt_ids()
        self._window = int(window)
        self._capacity = self._window - self._specials.count - len(self._lead)
        if self._capacity < 1:
            raise SettingsError(f"{path!r}: special tokens leave no room in {window} tokens")
        self.details = {
            "source": path,
            "window": f"{self._window} tokens",
            "device": str(self._model.device),
        }
        self.revision = self._digest()

    def encode(self, texts: Sequence[str], reading: Reading) -> Vectors:
        """Unit vectors, float32 ``[texts, dimensions]``."""
        most = 1 if reading == "first" else sys.maxsize
        rows: dict[bytes, int] = {}
        distinct: list[np.ndarray] = []
        place, owner, weight = [], [], []
        for number, text in enumerate(texts):
            for ids in pack_windows(self._pieces(text), self._capacity, most):
                row = self._specials.wrap(np.concatenate([self._lead, ids]))
                key = row.tobytes()
                if key not in rows:
                    rows[key] = len(distinct)
                    distinct.append(row)
                place.append(rows[key])
                owner.append(number)
                weight.append(float(len(ids)))
        vectors = self._windows(distinct)[torch.tensor(place)]
        pooled = pool_windows(vectors, torch.tensor(owner), torch.tensor(weight), len(texts))
        unit: Vectors = torch.nn.functional.normalize(pooled, dim=-1).numpy()
        return unit

    def first_token_attention(self, text: str) -> tuple[Offsets, Vectors]:
        """What the first token of the first window attends to, in the last layer.

        Returns:
            Characters of each token of the window, int64 ``[tokens, 2]``, special tokens left out;
            its weight, the mean over the heads, float32 ``[tokens]``.
        """
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        ids = np.asarray(encoding.ids[: self._capacity], dtype=np.int64)
        row = torch.from_numpy(self._specials.wrap(np.concatenate([self._lead, ids])))[None]
        transformer: Any = self._model[0].auto_model
        # Fused attention keeps no weights.
        transformer.set_attn_implementation("eager")
        row = row.to(self._model.device)
        with torch.inference_mode():
            states = transformer(
                input_ids=row, attention_mask=torch.ones_like(row), output_attentions=True
            )
        first = len(self._specials.prefix) + len(self._lead)
        weights = states.attentions[-1][0].mean(0)[0, first : first + len(ids)]
        offsets = np.asarray(encoding.offsets[: self._capacity], dtype=np.int64).reshape(-1, 2)
        return offsets, weights.float().cpu().numpy()

    def _pieces(self, text: str) -> View:
        sentences = split_sentences(text) or [text]
        encoded = self._tokenizer.encode_batch(sentences, add_special_tokens=False)
        pieces: View = [np.asarray(e.ids, dtype=np.int64) for e in encoded if e.ids]
        # Where the tokenizer drops every character, one padding token stands for the text.
        return pieces or [np.asarray([self._specials.pad], dtype=np.int64)]

    def _windows(self, rows: list[np.ndarray]) -> Tensor:
        budget = _CPU_TOKENS if self._model.device.type == "cpu" else _DEVICE_TOKENS
        found: list[tuple[list[int], Tensor]] = []
        for chunk in plan_chunks([len(row) for row in rows], budget, 1):
            width = max(len(rows[i]) for i in chunk)
            ids = np.full((len(chunk), width), self._specials.pad, dtype=np.int64)
            mask = np.zeros_like(ids)
            for line, i in enumerate(chunk):
                ids[line, : len(rows[i])] = rows[i]
                mask[line, : len(rows[i])] = 1
            inputs: dict[str, Any] = {
                "input_ids": torch.from_numpy(ids).to(self._model.device),
                "attention_mask": torch.from_numpy(mask).to(self._model.device),
            }
            with torch.inference_mode():
                vectors = self._model(inputs)["sentence_embedding"]
            found.append((chunk, vectors.float().cpu()))
        full = torch.empty(len(rows), found[0][1].shape[1])
        for chunk, vectors in found:
            full[chunk] = vectors
        return full

    def _prompt_ids(self) -> np.ndarray:
        name = self._model.default_prompt_name
        prompt = self._model.prompts.get(name, "") if name else ""
        ids = self._tokenizer.encode(prompt, add_special_tokens=False).ids if prompt else []
        return np.asarray(ids, dtype=np.int64)

    def _digest(self) -> str:
        digest = hashlib.sha256()
        facts = [str(self._model), self._window, self._lead.tolist(), self._tokenizer.to_str()]
        digest.update(json.dumps(facts).encode())
        for key, tensor in sorted(self._model.state_dict().items()):
            digest.update(key.encode())
            digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
        return f"folder-{digest.hexdigest()}"


def _kind(path: str) -> str:
    return "checkpoint" if Path(path, "training.json").is_file() else "sentence-transformers"
