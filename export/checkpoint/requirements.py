"""What a bundle requires of a checkpoint: architecture, size, tokenizer and window."""

import hashlib
import json
import os
import warnings
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from export.checkpoint import long_attention
from export.errors import ExportError

# Encoders whose graphs both the fp16 fusion and the int8 quantiser support. Each has a test.
FAMILIES = (
    "albert",
    "bert",
    "camembert",
    "deberta-v2",
    "distilbert",
    long_attention.MODEL_TYPE,
    "electra",
    "mistral",
    "modernbert",
    "mpnet",
    "nomic_bert",
    "qwen2",
    "qwen3",
    "roberta",
    "xlm-roberta",
)

# copies of the weights in fp32 that an export holds at once: the source, its graph, a probe of the
# graph, and what the runtime makes of that
_COPIES = 5


def check_size(model: nn.Module, source: str) -> None:
    """Refuse a model that this machine's memory cannot hold often enough.

    Raises:
        ExportError: the message says how large it is.
    """
    check_memory(4 * sum(parameter.numel() for parameter in model.parameters()), source)


def check_memory(weights: int, source: str) -> None:
    """Refuse weights of so many bytes, if this machine has too little memory.

    Raises:
        ExportError: the message says how much is needed.
    """
    memory = installed_memory()
    if _COPIES * weights > memory:
        raise ExportError(
            f"{source}: has {weights / 1e9:.1f} GB of weights; their export needs some "
            f"{_COPIES * weights / 1e9:.0f} GB of memory, this machine has {memory / 1e9:.0f} GB"
        )


def installed_memory() -> int:
    """Bytes of memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@contextmanager
def missing_weights() -> Iterator[set[str]]:
    """Names of parameters that the files lack of the transformers opened in this context.

    transformers fills them with random numbers and only warns.
    """
    found: set[str] = set()
    former = vars(PreTrainedModel)["from_pretrained"]
    opened: Any = former.__func__

    def noting(kind: type[PreTrainedModel], *given: Any, **options: Any) -> Any:
        wanted = options.pop("output_loading_info", False)
        model, facts = opened(kind, *given, output_loading_info=True, **options)
        parameters = {name for name, _ in model.named_parameters(remove_duplicate=False)}
        found.update(parameters.intersection(facts["missing_keys"]))
        return (model, facts) if wanted else model

    # sentence-transformers does not pass this report on
    setattr(PreTrainedModel, "from_pretrained", classmethod(noting))  # noqa: B010 mypy
    try:
        yield found
    finally:
        setattr(PreTrainedModel, "from_pretrained", former)  # noqa: B010


@contextmanager
def opening(source: str, kind: str) -> Iterator[set[str]]:
    """Open a checkpoint in this context; gives the names of parameters that its files lack.

    Args:
        source: the checkpoint's name in messages.
        kind: what it should be, with its article.

    Raises:
        ExportError: it cannot be opened.
    """
    try:
        with warnings.catch_warnings(), missing_weights() as missing:
            # older checkpoints use deprecated names of classes
            warnings.simplefilter("ignore", DeprecationWarning)
            warnings.simplefilter("ignore", FutureWarning)
            yield missing
    except Exception as error:  # four libraries raise different errors
        if "trust_remote_code" in str(error):
            raise ExportError(
                f"{source}: contains model code; read it, then allow it with --trust-remote-code"
            ) from error
        reason = _broken_file(Path(source)) or first_line(error)
        if "processing class" in reason and not any(Path(source).rglob("tokenizer.json")):
            reason = "tokenizer.json is missing"
        raise ExportError(f"{source}: cannot be opened as {kind}: {reason}") from error


def _broken_file(folder: Path) -> str | None:
    """What is wrong with the first file that is not readable; libraries do not name it."""
    for file in sorted(folder.rglob("*.json")):
        try:
            json.loads(file.read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            return f"{file.relative_to(folder)} is no valid JSON ({error})"
    for file in sorted(folder.rglob("*.safetensors")):
        try:
            with safe_open(file, "pt"):
                pass
        except SafetensorError as error:
            return f"{file.relative_to(folder)} is damaged or incomplete ({error})"
    return None


def check_missing(missing: Collection[str], source: str) -> None:
    """Refuse a checkpoint that lacks weights.

    Raises:
        ExportError: the message names one of them.
    """
    if missing:
        raise ExportError(
            f"{source}: {len(missing)} weights are missing, for instance {min(missing)}; "
            "write the whole model with save_pretrained, which gives them the architecture's names"
        )


def check_family(encoder: PreTrainedModel, source: str, families: Sequence[str] = FAMILIES) -> None:
    """Refuse an architecture that is not among ``families``.

    Raises:
        ExportError: the message names the architecture.
    """
    config = encoder.config
    if config.model_type not in families or getattr(config, "is_decoder", False):
        kind = "decoder" if getattr(config, "is_decoder", False) else "model"
        raise ExportError(
            f"{source}: a {config.model_type} {kind} is unsupported; "
            f"the supported encoders are {', '.join(families)}"
        )
    positions = getattr(config, "position_embedding_type", "absolute")
    if positions not in ("absolute", None):
        raise ExportError(
            f"{source}: position_embedding_type {positions} is unsupported; use absolute"
        )


def fast_tokenizer(
    transformer: nn.Module, encoder: PreTrainedModel, source: str
) -> PreTrainedTokenizerFast:
    """The tokenizer of ``transformer``, the module in front of a sentence-transformers model.

    Raises:
        ExportError: a bundle cannot express it.
    """
    tokenizer = transformer.tokenizer
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise ExportError(
            f"{source}: no fast tokenizer; save one as tokenizer.json "
            "(AutoTokenizer.from_pretrained(..., use_fast=True).save_pretrained)"
        )
    rows = cast(nn.Embedding, encoder.get_input_embeddings()).num_embeddings
    if tokenizer.pad_token_id is None:
        raise ExportError(f"{source}: the tokenizer has no padding token")
    if len(tokenizer) > rows:
        raise ExportError(
            f"{source}: the tokenizer has {len(tokenizer)} tokens, the model {rows} embeddings"
        )
    token, highest = max(tokenizer.get_vocab().items(), key=lambda entry: entry[1])
    if highest >= rows:
        raise ExportError(
            f"{source}: the tokenizer's token {token!r} has the id {highest}, the model {rows} "
            "embeddings"
        )
    vocabulary = len(tokenizer.get_vocab()) - len(tokenizer.all_special_tokens)
    if vocabulary < 1:
        raise ExportError(f"{source}: the tokenizer is empty; is tokenizer.json missing?")
    if getattr(transformer, "do_lower_case", False):
        normalizer = tokenizer.backend_tokenizer.normalizer
        if normalizer is None or normalizer.normalize_str("A") != "a":
            raise ExportError(
                f"{source}: do_lower_case is not part of tokenizer.json; "
                "add a Lowercase normalizer there"
            )
    return tokenizer


def windows(
    configured: int | None,
    encoder: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    wanted: int | None,
    source: str,
) -> tuple[int, int]:
    """The window that the authors of a checkpoint configured, and that of its export.

    Args:
        configured: the window that its files name.
        encoder: has embeddings of positions.
        tokenizer: has the padding token.
        wanted: the window that the user wants; by default the authors'.
        source: the checkpoint's name in messages.

    Raises:
        ExportError: the model has no positions for ``wanted``.
    """
    limit = positions(encoder, tokenizer) or int(configured or wanted or 512)
    trained = min(int(configured) if configured else limit, limit)
    window = trained if wanted is None else wanted
    if not 8 <= window <= limit:
        raise ExportError(
            f"{source}: --max-tokens {window} is outside 8..{limit}; "
            f"{limit} is the model's last position"
        )
    return trained, window


def positions(encoder: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> int | None:
    """Tokens that an encoder has positions for; None if it has relative positions only, as T5 has.

    Args:
        encoder: has embeddings of positions.
        tokenizer: has the padding token.
    """
    config = encoder.config
    table = getattr(getattr(encoder, "embeddings", None), "position_embeddings", None)
    # RoBERTa and similar models count positions from padding_idx + 1.
    if isinstance(table, nn.Embedding) and table.padding_idx is not None:
        return table.num_embeddings - table.padding_idx - 1
    found = getattr(config, "max_position_embeddings", None)
    if found is None:
        return None
    if config.model_type in ("camembert", "mpnet", "roberta", "xlm-roberta"):
        return int(found) - int(tokenizer.pad_token_id) - 1
    if config.model_type == long_attention.MODEL_TYPE:
        return int(found) - int(config.position_offset)
    return int(found)


def digest(named: Iterable[tuple[str, Tensor]]) -> str:
    """SHA-256 over named tensors: name, dtype, shape and bytes of each."""
    total = hashlib.sha256()
    for name, tensor in named:
        total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        total.update(tensor.detach().contiguous().cpu().numpy().tobytes())
    return total.hexdigest()


def first_line(error: Exception) -> str:
    """The first line of an error's message, and the second one if the first announces it."""
    first, *rest = str(error).strip().splitlines() or [type(error).__name__]
    return f"{first} {rest[0].strip()}" if first.endswith(":") and rest else first
