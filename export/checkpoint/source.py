"""Open a sentence-transformers or transformers checkpoint and read how it computes vectors."""

import hashlib
import inspect
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from sentence_transformers import SentenceTransformer
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from bundles.manifest import Pooling
from export.checkpoint import long_attention
from export.checkpoint.card import matryoshka, read_card
from export.checkpoint.files import check_files
from export.checkpoint.modules import Tail, read_tail
from export.checkpoint.onnx_folder import graph_of, open_graph
from export.checkpoint.rotary import check_rotations
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

# in one ONNX file, whose protobuf message ends at 2 GiB
MOST_WEIGHTS = 520_000_000


@dataclass(frozen=True)
class Source:
    """A checkpoint, opened in fp32 on the CPU.

    Attributes:
        name: its name in the bundle's lineage; never a path.
        model: the checkpoint in sentence-transformers, with windows of ``max_tokens``.
        encoder: the transformer of ``model``.
        tokenizer: its fast tokenizer.
        pooling: how token vectors become one vector.
        after: Dense and Normalize modules after the pooling, in order.
        normalises: whether the last module is a Normalize.
        trained_tokens: the window that its authors configured, special tokens included.
        max_tokens: the window of this export, special tokens included.
        prompts: prompt name → text before every input.
        default_prompt: name of the prompt for callers that name none.
        matryoshka: shorter lengths of vectors that the checkpoint declares.
        card: the text of its model card.
    """

    name: str
    model: SentenceTransformer
    encoder: PreTrainedModel
    tokenizer: PreTrainedTokenizerFast
    pooling: Pooling
    after: tuple[nn.Module, ...]
    normalises: bool
    trained_tokens: int
    max_tokens: int
    prompts: dict[str, str]
    default_prompt: str | None
    matryoshka: list[int]
    card: str

    @property
    def takes_token_types(self) -> bool:
        """Whether the encoder takes ``token_type_ids``."""
        return "token_type_ids" in inspect.signature(self.encoder.forward).parameters

    def weights_digest(self) -> str:
        """SHA-256 over the named tensors: name, dtype, shape and bytes of each.

        The encoder's tensors come first, then those of each module after the pooling, in order.
        Unlike a digest of the file, it does not depend on the format (safetensors, shards).
        """
        total = hashlib.sha256()
        named = sorted(self.encoder.state_dict().items())
        for place, module in enumerate(self.after):
            named += sorted(module.state_dict(prefix=f"after.{place}.").items())
        for name, tensor in named:
            total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
            total.update(tensor.detach().contiguous().cpu().numpy().tobytes())
        return total.hexdigest()


def open_source(
    source: str,
    *,
    source_name: str | None = None,
    max_tokens: int | None = None,
    trust_remote_code: bool = False,
) -> Source:
    """Open a checkpoint and check that a bundle can express it.

    Args:
        source: a folder, or a name on the Hugging Face hub.
        source_name: its name in the lineage; by default the hub name or the folder's name.
        max_tokens: window of the bundle, special tokens included; by default the checkpoint's.
        trust_remote_code: run model code in the folder of the weights; long checkpoints need it.

        Raises:
            ExportError: the checkpoint cannot be opened, or a bundle cannot express it.
    """
    folder = Path(source).expanduser()
    if not folder.is_dir() and (source.startswith((".", "/", "~")) or source.count("/") > 1):
        raise ExportError(f"{source}: no such folder")
    path = str(folder) if folder.is_dir() else source
    try:
        check_files(path, trusted=trust_remote_code)
        card = read_card(path)
    except OSError as error:  # the hub's errors, too
        raise ExportError(f"{source}: cannot be opened: {_first_line(error)}") from error
    graph = graph_of(path)
    model = _load(path, trust_remote_code) if graph is None else _load_graph(graph, source)
    tail = read_tail(model, source)
    encoder = cast(PreTrainedModel, model[0].auto_model)
    if graph is None:
        _check_family(encoder, source)
        check_rotations(encoder, source)
    _check_size(model, source)
    tokenizer = _fast_tokenizer(model[0], encoder, source)
    trained, limit = _windows(model, encoder, tokenizer)
    window = trained if max_tokens is None else max_tokens
    if not 8 <= window <= limit:
        raise ExportError(
            f"{source}: --max-tokens {window} is outside 8..{limit}; "
            f"{limit} is the model's last position"
        )
    model.max_seq_length = window
    return Source(
        name=source_name or (folder.resolve().name if folder.is_dir() else source),
        model=model,
        encoder=encoder,
        tokenizer=tokenizer,
        pooling=tail.pooling,
        after=tail.after,
        normalises=tail.normalises,
        trained_tokens=trained,
        max_tokens=window,
        prompts={name: text for name, text in model.prompts.items() if text},
        default_prompt=_default_prompt(model),
        matryoshka=matryoshka(encoder.config, card, _dimensions(tail, encoder)),
        card=card,
    )


def _load(source: str, trust_remote_code: bool) -> SentenceTransformer:
    try:
        with warnings.catch_warnings():
            # modules.json of older checkpoints uses deprecated names of classes.
            warnings.simplefilter("ignore", DeprecationWarning)
            warnings.simplefilter("ignore", FutureWarning)
            model = SentenceTransformer(
                source,
                device="cpu",
                trust_remote_code=trust_remote_code,
                model_kwargs={"attn_implementation": "eager"},
            )
    except Exception as error:  # four libraries raise different errors
        if "trust_remote_code" in str(error):
            raise ExportError(
                f"{source}: contains model code; read it, then allow it with --trust-remote-code"
            ) from error
        reason = _first_line(error)
        raise ExportError(f"{source}: cannot be opened as an encoder: {reason}") from error
    return model.float().eval()


def _load_graph(graph: Path, source: str) -> SentenceTransformer:
    try:
        return open_graph(graph, source).eval()
    except ExportError:
        raise
    except Exception as error:  # four libraries raise different errors
        raise ExportError(
            f"{source}: {graph.name} cannot be opened as an encoder: {_first_line(error)}"
        ) from error


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def _check_size(model: SentenceTransformer, source: str) -> None:
    weights = sum(parameter.numel() for parameter in model.parameters())
    if weights > MOST_WEIGHTS:
        raise ExportError(
            f"{source}: has {weights / 1e6:.0f} M weights; an ONNX file of 2 GiB holds at most "
            f"{MOST_WEIGHTS / 1e6:.0f} M in fp32"
        )


def _dimensions(tail: Tail, encoder: PreTrainedModel) -> int:
    dense = [int(cast(Any, m).out_features) for m in tail.after if type(m).__name__ == "Dense"]
    return dense[-1] if dense else int(encoder.config.hidden_size)


def _check_family(encoder: PreTrainedModel, source: str) -> None:
    config = encoder.config
    if config.model_type not in FAMILIES or getattr(config, "is_decoder", False):
        kind = "decoder" if getattr(config, "is_decoder", False) else "model"
        raise ExportError(
            f"{source}: a {config.model_type} {kind} is unsupported; "
            f"the supported encoders are {', '.join(FAMILIES)}"
        )
    positions = getattr(config, "position_embedding_type", "absolute")
    if positions not in ("absolute", None):
        raise ExportError(
            f"{source}: position_embedding_type {positions} is unsupported; use absolute"
        )


def _fast_tokenizer(
    transformer: nn.Module, encoder: PreTrainedModel, source: str
) -> PreTrainedTokenizerFast:
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


def _windows(
    model: SentenceTransformer, encoder: PreTrainedModel, tokenizer: PreTrainedTokenizerFast
) -> tuple[int, int]:
    """The window that its authors configured and the longest that the model's positions allow."""
    table = getattr(getattr(encoder, "embeddings", None), "position_embeddings", None)
    limit = int(encoder.config.max_position_embeddings)
    # RoBERTa and similar models count positions from padding_idx + 1.
    if isinstance(table, nn.Embedding) and table.padding_idx is not None:
        limit = table.num_embeddings - table.padding_idx - 1
    elif encoder.config.model_type in ("camembert", "mpnet", "roberta", "xlm-roberta"):
        limit -= int(tokenizer.pad_token_id) + 1
    elif encoder.config.model_type == long_attention.MODEL_TYPE:
        limit -= int(encoder.config.position_offset)
    configured = model.max_seq_length
    return min(int(configured) if configured else limit, limit), limit


def _default_prompt(model: SentenceTransformer) -> str | None:
    name = model.default_prompt_name
    return name if name and model.prompts.get(name) else None


def reference_vectors(source: Source, texts: list[str], *, batch_size: int = 8) -> Tensor:
    """Unit vectors of ``texts`` by sentence-transformers: float32 ``[texts, dimensions]``.

    The texts get no prompt.
    """
    return source.model.encode(
        texts,
        batch_size=batch_size,
        prompt="",
        convert_to_tensor=True,
        normalize_embeddings=True,
        show_progress_bar=False,
    ).float()
