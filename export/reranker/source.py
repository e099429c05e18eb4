"""Open a cross-encoder: a sequence classifier with one output."""

import inspect
import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from sentence_transformers import CrossEncoder
from sentence_transformers.util import load_file_path
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from export.checkpoint.files import locate
from export.checkpoint.requirements import (
    check_family,
    check_missing,
    check_size,
    digest,
    fast_tokenizer,
    opening,
    windows,
)
from export.checkpoint.rotary import check_rotations
from export.errors import ExportError
from export.tasks.held_out import HeldOut

# Families with a class for sequence classification that reads the first token or a mean.
FAMILIES = (
    "albert",
    "bert",
    "camembert",
    "deberta-v2",
    "distilbert",
    "electra",
    "modernbert",
    "mpnet",
    "roberta",
    "xlm-roberta",
)
_CLASSIFIER = "ForSequenceClassification"
# The service applies a logistic function where scores are to lie between 0 and 1.
_ACTIVATIONS = ("Sigmoid", "Identity")

# a query and a text
Pair = tuple[str, str]


@dataclass(frozen=True)
class PairSource:
    """A cross-encoder, opened in fp32 on the CPU.

    Attributes:
        name: its name in the bundle's lineage; never a path.
        cross_encoder: the checkpoint in sentence-transformers, with windows of ``max_tokens``.
        encoder: its transformer with the classifier.
        tokenizer: its fast tokenizer.
        trained_tokens: the window that its authors configured, special tokens included.
        max_tokens: the window of this export, special tokens included.
        segment_offset: what the ids of the second segment are raised by; 0 without token types.
        activation: name of the function that the checkpoint applies to its output.
        card: the text of its model card.
    """

    name: str
    cross_encoder: CrossEncoder
    encoder: PreTrainedModel
    tokenizer: PreTrainedTokenizerFast
    trained_tokens: int
    max_tokens: int
    segment_offset: int
    activation: str
    card: str

    @property
    def base(self) -> PreTrainedModel:
        """The transformer without the classifier."""
        return cast(PreTrainedModel, self.encoder.base_model)

    @property
    def model(self) -> nn.Module:
        """The module that holds all weights."""
        return self.encoder

    def weights_digest(self) -> str:
        """SHA-256 over the named tensors."""
        return digest(sorted(self.encoder.state_dict().items()))


def is_reranker(source: str, *, trusted: bool = False) -> bool:
    """Whether a checkpoint is a sequence classifier and no sentence encoder.

    Args:
        source: folder or hub name.
        trusted: whether the user trusts the source's code.

    Raises:
        ExportError: the checkpoint cannot be opened.
    """
    path, _, _ = locate(source, trusted=trusted)
    architectures = _json(path, "config.json").get("architectures") or [""]
    kind = _json(path, "config_sentence_transformers.json").get("model_type")
    if kind is None and load_file_path(path, "modules.json") is not None:
        return False
    return kind in (None, "CrossEncoder") and str(architectures[0]).endswith(_CLASSIFIER)


def open_pair_source(
    source: str,
    *,
    source_name: str | None = None,
    max_tokens: int | None = None,
    trust_remote_code: bool = False,
) -> PairSource:
    """Open a cross-encoder and check that a bundle can express it; see ``open_source``.

    Raises:
        ExportError: the checkpoint cannot be opened, or a bundle cannot express it.
    """
    path, name, card = locate(source, trusted=trust_remote_code)
    model = _load(path, trust_remote_code)
    encoder = model.model
    if encoder is None or not type(encoder).__name__.endswith(_CLASSIFIER) or len(list(model)) > 1:
        kinds = " → ".join(type(module).__name__ for module in model)
        raise ExportError(
            f"{source}: a cross-encoder of {kinds} is unsupported; a re-ranker is a transformer "
            "with a classifier of one output"
        )
    check_family(encoder, source, FAMILIES)
    base = cast(PreTrainedModel, encoder.base_model)
    check_rotations(base, source)
    check_size(encoder, source)
    if model.num_labels != 1:
        raise ExportError(
            f"{source}: has {model.num_labels} labels; a re-ranker has one output, its score"
        )
    activation = _activation(path, model)
    if activation not in _ACTIVATIONS:
        raise ExportError(
            f"{source}: the activation {activation} is unsupported; a re-ranker has "
            f"{' or '.join(_ACTIVATIONS)}"
        )
    if any(model.prompts.values()):
        raise ExportError(f"{source}: has prompts, which a re-ranker's bundle cannot hold")
    tokenizer = fast_tokenizer(model[0], encoder, source)
    trained, window = windows(model.max_seq_length, base, tokenizer, max_tokens, source)
    model.max_seq_length = window
    return PairSource(
        name=source_name or name,
        cross_encoder=model,
        encoder=encoder,
        tokenizer=tokenizer,
        trained_tokens=trained,
        max_tokens=window,
        segment_offset=_segment_offset(encoder, tokenizer),
        activation=activation,
        card=card,
    )


def check_no_tasks(source: str, held_out: HeldOut) -> None:
    """Refuse held-out data, which only an encoder can be measured with.

    Raises:
        ExportError: there is some.
    """
    if held_out.retrieval or held_out.probe:
        raise ExportError(
            f"{source}: is a cross-encoder; --retrieval and --probe measure encoders only"
        )


def reference_scores(source: PairSource, pairs: Sequence[Pair]) -> np.ndarray:
    """Outputs of the cross-encoder for pairs, before any activation: float32 ``[pairs, 1]``.

    sentence-transformers cuts pairs that exceed the window.
    """
    with warnings.catch_warnings():
        # transformers warns that it cuts pairs
        warnings.simplefilter("ignore", UserWarning)
        found = source.cross_encoder.predict(
            list(pairs),
            batch_size=8,
            activation_fn=nn.Identity(),
            show_progress_bar=False,
            convert_to_numpy=True,
        )
    return np.asarray(found, dtype=np.float32)[:, None]


def _load(source: str, trust_remote_code: bool) -> CrossEncoder:
    with opening(source, "a cross-encoder") as missing:
        model = CrossEncoder(
            source,
            device="cpu",
            trust_remote_code=trust_remote_code,
            model_kwargs={"attn_implementation": "eager"},
        )
    check_missing(missing, source)
    return cast(CrossEncoder, model.float().eval())


def _activation(path: str, model: CrossEncoder) -> str:
    """The activation that the files name; sentence-transformers replaces one it does not trust."""
    config = _json(path, "config.json")
    named = (
        _json(path, "config_sentence_transformers.json").get("activation_fn")
        or (config.get("sentence_transformers") or {}).get("activation_fn")
        or config.get("sbert_ce_default_activation_function")
    )
    if isinstance(named, str) and not named.startswith("torch."):
        return named
    return type(model.activation_fn).__name__


def _segment_offset(encoder: PreTrainedModel, tokenizer: PreTrainedTokenizerFast) -> int:
    """The number of token ids, if the model distinguishes the segments of a pair, otherwise 0."""
    types = tokenizer("a", "a").get("token_type_ids")
    config: Any = encoder.config
    takes = "token_type_ids" in inspect.signature(encoder.forward).parameters
    if types is None or not any(types) or not takes or getattr(config, "type_vocab_size", 0) < 2:
        return 0
    return int(cast(nn.Embedding, encoder.get_input_embeddings()).num_embeddings)


def _json(source: str, name: str) -> dict[str, Any]:
    path = load_file_path(source, name)
    if path is None:
        return {}
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ExportError(f"{source}: {name} is no JSON") from error
    return found if isinstance(found, dict) else {}
