"""Encoders that compute on this machine: a bundle, or a sentence-transformers folder."""

import hashlib
import json
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from docsplit.corpora.fields import DataError
from docsplit.encoder import EmptyTextError, Encoder
from docsplit.engines.choice import ArithmeticWish, detect
from docsplit.windowing.tokens import DocumentTokenizer
from docsplit.windowing.vectors import Wide, document_vectors, read
from export.requirements import positions

# registers the long backbone too, whose checkpoints then open without code from their folder
from training.encoder import open_saved
from training.errors import SettingsError
from training.evaluation.encoders import Reading, Vectors
from training.tokens import whole_text_tokenizer


class BundleEncoder:
    """The vectors of a bundle, as ``docsplit.Encoder`` and a service give them.

    Args:
        folder: the folder of the bundle.
        name: its name in the report; default the model's name.
        precision: as the service's setting; ``auto`` is what the service chooses here.

    Raises:
        BundleError: the folder holds no valid bundle, or it cannot compute in this precision here.
    """

    kind = "bundle"

    def __init__(
        self, folder: Path, name: str | None = None, precision: ArithmeticWish = "auto"
    ) -> None:
        self._encoder = Encoder(folder, precision=precision)
        manifest, choice = self._encoder.manifest, self._encoder.choice
        runtime = "openvino" if choice.engine == "openvino" else "onnxruntime"
        version = import_module(runtime).__version__.split("-")[0]
        arithmetic = (
            f"{choice.arithmetic}, {choice.graph} graph, {choice.engine} {version}, {detect().name}"
        )
        self.name = name or manifest.name
        self.revision = f"bundle-{manifest.revision}-{arithmetic}"
        self.details = {
            "model": manifest.name,
            "revision": manifest.revision[:12],
            "window": f"{manifest.max_tokens} tokens",
            "arithmetic": arithmetic,
        }

    def encode(self, texts: Sequence[str], reading: Reading) -> Vectors:
        """Unit vectors, float32 ``[texts, dimensions]``.

        Raises:
            DataError: a text has no token or no known word.
        """
        try:
            return self._encoder.embed(texts, first=reading == "first")
        except EmptyTextError as error:
            raise DataError(
                f"{self.name}: a text has no token, or no word that the encoder knows; leave it out"
            ) from error


Offsets = npt.NDArray[np.int64]
_CPU_TOKENS = 2048
_DEVICE_TOKENS = 32_768


class FolderEncoder:
    """An encoder as ``SentenceTransformer(path)`` opens it.

    It reads a text like the service: it cuts content-defined windows and takes their weighted mean.

    Args:
        path: folder, or a name on the hub.
        name: its name in the report.
        max_tokens: longest window, special tokens included; default the folder's setting.
        trust_remote_code: run modelling code in the folder of the weights.

        Raises:
            SettingsError: the path holds no encoder, no fast tokenizer or no window length.
    """

    def __init__(
        self,
        path: str,
        name: str,
        max_tokens: int | None = None,
        *,
        trust_remote_code: bool = False,
    ) -> None:
        self._model = open_saved(path, trusted=trust_remote_code)
        self._model.eval()
        tokenizer = self._model.tokenizer
        if not getattr(tokenizer, "is_fast", False):
            raise SettingsError(f"{path!r}: no fast tokenizer (tokenizer.json)")
        self.name, self.kind = name, _kind(path)
        default = self._model.default_prompt_name
        self._prompt: str = self._model.prompts.get(default or "") or ""
        self._window = _window(self._model, max_tokens, path)
        self._backend = whole_text_tokenizer(tokenizer)
        try:
            self._tokenizer = DocumentTokenizer(self._backend, self._window)
            if self._tokenizer.count(self._prompt) >= self._tokenizer.capacity:
                raise ValueError(f"the prompt fills the window of {self._window} tokens")
        except ValueError as error:
            raise SettingsError(f"{path!r}: {error}") from None
        self._pad = int(tokenizer.pad_token_id or 0)
        self.details = {
            "source": path,
            "window": f"{self._window} tokens",
            "device": str(self._model.device),
        }
        self.revision = self._digest()

    def encode(self, texts: Sequence[str], reading: Reading) -> Vectors:
        """Unit vectors, float32 ``[texts, dimensions]``."""
        return document_vectors(
            read(self._tokenizer, texts, self._prompt, first=reading == "first"),
            self._windows,
            pad_token_id=self._pad,
            batch_tokens=_CPU_TOKENS if self._model.device.type == "cpu" else _DEVICE_TOKENS,
        )

    def first_token_attention(self, text: str) -> tuple[Offsets, Vectors]:
        """Attention of the first token of the first window in the last layer.

        Returns:
            Characters of each token of the window, int64 ``[tokens, 2]``, without special tokens;
            the token's weight, the mean over the heads, float32 ``[tokens]``.
        """
        [[window]] = read(self._tokenizer, [text], self._prompt, first=True)
        row = torch.from_numpy(window.ids.astype(np.int64))[None]
        transformer: Any = self._model[0].auto_model
        # Fused attention does not return weights.
        transformer.set_attn_implementation("eager")
        row = row.to(self._model.device)
        with torch.inference_mode():
            states = transformer(
                input_ids=row, attention_mask=torch.ones_like(row), output_attentions=True
            )
        last = len(window.ids) - len(self._tokenizer.suffix)
        weights = states.attentions[-1][0].mean(0)[0, last - window.tokens : last]
        encoding = self._backend.encode(text, add_special_tokens=False)
        offsets = np.asarray(encoding.offsets[: window.tokens], dtype=np.int64).reshape(-1, 2)
        return offsets, weights.float().cpu().numpy()

    def _windows(self, ids: Wide, mask: Wide) -> Vectors:
        inputs: dict[str, Any] = {
            "input_ids": torch.from_numpy(ids).to(self._model.device),
            "attention_mask": torch.from_numpy(mask).to(self._model.device),
        }
        with torch.inference_mode():
            vectors = self._model(inputs)["sentence_embedding"].float()
        unit: Vectors = torch.nn.functional.normalize(vectors, dim=-1).cpu().numpy()
        return unit

    def _digest(self) -> str:
        digest = hashlib.sha256()
        facts = [
            *("content-defined windows", str(self._model), self._window, self._prompt),
            self._backend.to_str(),
        ]
        digest.update(json.dumps(facts).encode())
        for key, tensor in sorted(self._model.state_dict().items()):
            digest.update(key.encode())
            digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
        return f"folder-{digest.hexdigest()}"


def _kind(path: str) -> str:
    return "checkpoint" if Path(path, "training.json").is_file() else "sentence-transformers"


def _window(model: Any, wanted: int | None, path: str) -> int:
    """The window that the user wants, by default the model's own.

    Raises:
        SettingsError: the model has no positions for ``wanted``, or names no window.
    """
    transformer = getattr(model[0], "auto_model", None)
    limit = None if transformer is None else positions(transformer, model.tokenizer)
    if wanted is not None and limit is not None and wanted > limit:
        raise SettingsError(
            f"{path!r}: --max-tokens {wanted} is more than the {limit} positions of the model"
        )
    window = wanted or model.max_seq_length
    if window is None or window > 1_000_000:
        raise SettingsError(f"{path!r}: sets no window length; give one with --max-tokens")
    # some checkpoints name a longer window than their model can read
    return int(window) if limit is None else min(int(window), limit)
