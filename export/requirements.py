"""What a bundle requires of a checkpoint: its files, card, architecture, size, tokenizer and
window.
"""

import hashlib
import json
import os
import re
import warnings
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, Literal, cast

import yaml
from huggingface_hub import ModelCard, constants, get_hf_file_metadata, hf_hub_url
from huggingface_hub.errors import HfHubHTTPError, HFValidationError
from huggingface_hub.file_download import repo_folder_name
from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression
from safetensors import SafetensorError, safe_open
from sentence_transformers.util import load_dir_path, load_file_path
from tokenizers import Regex, Tokenizer, pre_tokenizers
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from docsplit.bundles.manifest import MANIFEST, TOKENIZER
from export.attention import LONG_MODEL_TYPE
from export.errors import ExportError, first_line, refused

# Say why no library can open an encoder, before one asks an unreachable hub for each file.

_SECONDS = 10


def absence(source: str) -> str | None:
    """Why there is no encoder to open; None if it is a folder or the hub may have it.

    Without a connection the libraries repeat their requests for minutes. What the hub answers is
    left to them.

    Args:
        source: folder or hub name.
    """
    folder = Path(source).expanduser()
    if (folder / MANIFEST).is_file():
        return "a bundle; give the encoder that it was made from"
    if folder.is_dir():
        return None
    if folder.exists():
        return "a file; give the folder of an encoder"
    try:
        address = hf_hub_url(source, "config.json")
        name = repo_folder_name(repo_id=source, repo_type="model")
    except HFValidationError:
        return "no such folder"
    # what was downloaded before needs no connection
    if constants.HF_HUB_OFFLINE or Path(constants.HF_HUB_CACHE, name).is_dir():
        return None
    try:
        get_hf_file_metadata(address, timeout=_SECONDS)
    except HfHubHTTPError:
        return None
    except Exception as error:  # noqa: BLE001 - the errors of httpx or of requests, by its version
        return (
            f"no such folder, and {constants.ENDPOINT} cannot be reached to look for a model of "
            f"that name ({error}); correct the path, or connect this machine"
        )
    return None


# Read what a checkpoint's model card declares.

# what the hub writes if no identifier fits
_NONE = ("other", "unknown")
_DIMENSIONS = re.compile(r'"matryoshka_dims":\s*(\[[\d\s,]+\])')
# no length of a vector has more digits
_NUMBER = re.compile(r"\b\d{1,9}\b")


def read_card(source: str) -> str:
    """The text of the checkpoint's ``README.md``; empty without one."""
    path = load_file_path(source, "README.md")
    return "" if path is None else Path(path).read_text(encoding="utf-8", errors="replace")


def licence(source: str, card: str) -> str:
    """The SPDX identifier of the licence that a model card names.

    Raises:
        ExportError: the card names none.
    """
    try:
        named = ModelCard(card, ignore_metadata_errors=True).data.get("license")
    except (ValueError, yaml.YAMLError):
        named = None
    if not isinstance(named, str) or named.lower() in _NONE:
        raise ExportError(
            f"{source}: its model card names no licence; name the weights' licence with --licence"
        )
    try:
        # the hub writes them in lower case
        return canonicalize_license_expression(named)
    except InvalidLicenseExpression:
        return named


def matryoshka(config: Any, card: str, dimensions: int, cut: object = None) -> list[int]:
    """Lengths to which vectors may be cut, as the checkpoint declares them; the longest first.

    Jina writes them into ``config.json``. sentence-transformers writes the parameters of
    ``MatryoshkaLoss`` into the model card (Kusupati et al. 2022, arXiv:2205.13147), and the length
    ``cut`` of its own vectors into its settings as ``truncate_dim``.
    """
    declared = getattr(config, "matryoshka_dimensions", None)
    if declared is None:
        found = _DIMENSIONS.search(card)
        declared = [int(one) for one in _NUMBER.findall(found[1])] if found else []
    # config.json may hold anything
    lengths = declared if isinstance(declared, list) else []
    whole = {one for one in [*lengths, cut] if type(one) is int and 0 < one < dimensions}
    return sorted(whole, reverse=True)


# What a bundle requires of a checkpoint: architecture, size, tokenizer and window.

# Encoders whose graphs both the fp16 fusion and the int8 quantiser support. Each has a test.
FAMILIES = (
    "albert",
    "bert",
    "camembert",
    "deberta-v2",
    "distilbert",
    LONG_MODEL_TYPE,
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


Reader = Literal["file", "class"]
# texts that tokenizers treat differently, by what they show
SAMPLES = {
    "capital letters": "The QUICK Brown Fox of NATO",
    "accents": "Émile naïve Ärger, e\u0301 a\u0308 I\u0307 ß",
    "white space": "  two  blanks,\ta tab,\n\nlines\r\n and\u00a0others ",
    "punctuation": "don't: e.g. [a-b]_c/d (x=1)... “quoted” — we'll",
    "numbers": "3.14, 1,000,000 and 2026-11-29",
    "Chinese and Japanese": "漢字かな。テスト",
    "other scripts": "한국어 ไทย عربي हिन्दी мир",
    "compatible letters": "\uff26\uff55\uff4c\uff4c \ufb01ne ² \u2163",
    "emoji": "\U0001f469\u200d\U0001f469 \u2764\ufe0f",
    "control characters": "a\u0000b\u200bc\u00add\ufeff",
    "special tokens": "a [MASK] b <mask> c [SEP] d </s> e",
}


def _choose(
    tokenizer: PreTrainedTokenizerFast, wanted: Reader | None, source: str, pairs: bool
) -> None:
    """Make a tokenizer read as its ``tokenizer.json`` or as its class, if they differ.

    transformers 5 builds many classes from the vocabulary and flags, without the file's normalizer
    and pre-tokenizer. transformers 4 and other servers read the file.
    """
    folder = tokenizer.name_or_path
    path = load_file_path(transformer_folder(folder), TOKENIZER) if folder else None
    if path is None or wanted == "class":
        return
    sides = [Tokenizer.from_file(path), Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())]
    for side in sides:
        side.no_padding()
        side.no_truncation()
    if wanted == "file":
        tokenizer._tokenizer = sides[0]
        return
    texts = [(text, text) if pairs else text for text in SAMPLES.values()]
    read = [[(one.ids, one.type_ids) for one in side.encode_batch(texts)] for side in sides]
    if differ := [kind for kind, one, other in zip(SAMPLES, *read, strict=True) if one != other]:
        raise ExportError(
            f"{source}: tokenizer.json splits {', '.join(differ)} otherwise than "
            f"{type(tokenizer).__name__} of transformers {version('transformers')}; name the one "
            "that the model was trained with: --tokenizer file (transformers 4 read the file) or "
            "--tokenizer class"
        )


# what the special tokens in a text are, such as [SEP]
InText = Literal["control", "text"]


def _split_special_tokens(tokenizer: PreTrainedTokenizerFast, source: str) -> None:
    """Cut the special tokens in a text behind their first characters.

    Without that, ``split_special_tokens`` leaves those that Unigram has in its vocabulary.
    """
    backend = tokenizer.backend_tokenizer
    names = [one.content for one in backend.get_added_tokens_decoder().values() if one.special]
    first = "|".join(f"{re.escape(name[0])}(?={re.escape(name[1:])})" for name in names)
    steps = [backend.pre_tokenizer, pre_tokenizers.Split(Regex(first), "isolated")]
    backend.pre_tokenizer = pre_tokenizers.Sequence([step for step in steps if step])
    ids = backend.encode(" ".join(names), add_special_tokens=False).ids
    left = {name for name in names if backend.token_to_id(name) in ids} - {tokenizer.unk_token}
    if left:
        raise ExportError(
            f"{source}: the tokenizer reads {', '.join(sorted(left))} in a text as special tokens "
            "whatever is asked; omit --special-tokens-in-text text"
        )


def fast_tokenizer(
    transformer: nn.Module,
    encoder: PreTrainedModel,
    wanted: Reader | None,
    source: str,
    *,
    in_text: InText | None = None,
    pairs: bool = False,
) -> PreTrainedTokenizerFast:
    """The tokenizer of ``transformer``, the module in front of a sentence-transformers model.

    It cuts and pads at the right, as the graphs do, whatever its files say.

    Args:
        wanted: whether it reads as ``tokenizer.json`` or as its class, if they differ.
        in_text: what special tokens in a text are; by default what the files say.
        pairs: whether it reads pairs of texts.

    Raises:
        ExportError: a bundle cannot express it, or ``wanted`` must say how it reads.
    """
    tokenizer = transformer.tokenizer
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise ExportError(
            f"{source}: no fast tokenizer; save one as tokenizer.json "
            "(AutoTokenizer.from_pretrained(..., use_fast=True).save_pretrained)"
        )
    _choose(tokenizer, wanted, source, pairs)
    plain = in_text == "text" or (in_text is None and tokenizer.split_special_tokens)
    tokenizer.split_special_tokens = tokenizer.backend_tokenizer.encode_special_tokens = plain
    tokenizer.padding_side = tokenizer.truncation_side = "right"
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
    if plain:
        _split_special_tokens(tokenizer, source)
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
    if config.model_type == LONG_MODEL_TYPE:
        return int(found) - int(config.position_offset)
    return int(found)


def digest(named: Iterable[tuple[str, Tensor]]) -> str:
    """SHA-256 over named tensors: name, dtype, shape and bytes of each."""
    total = hashlib.sha256()
    for name, tensor in named:
        total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        total.update(tensor.detach().contiguous().cpu().numpy().tobytes())
    return total.hexdigest()


# Check a checkpoint's files before a library opens them.


def locate(source: str, *, trusted: bool) -> tuple[str, str, str]:
    """Find a checkpoint and check its files.

    Args:
        source: folder or hub name.
        trusted: whether the user trusts the source's code.

    Returns:
        What libraries open, its name without a path, and its model card.

    Raises:
        ExportError: there is no such encoder, it cannot be opened, or ``check_files`` refuses it.
    """
    reason = absence(source)
    if reason is not None:
        raise ExportError(f"{source}: {reason}")
    folder = Path(source).expanduser()
    path = str(folder) if folder.is_dir() else source
    with refused(f"{source}: cannot be opened"):  # the hub has errors of its own
        check_files(path, trusted=trusted)
        card = read_card(path)
    return path, folder.resolve().name if folder.is_dir() else source, card


def transformer_folder(source: str) -> str:
    """Folder or hub name of a checkpoint's transformer, which may lie in a folder of its own."""
    listed = load_file_path(source, "modules.json")
    inside = _paths(source, Path(listed))[0] if listed else ""
    if not inside:
        return source
    if Path(source).is_dir():
        return str(Path(source, inside))
    return str(load_dir_path(source, inside))


def check_files(source: str, *, trusted: bool) -> None:
    """Refuse files that read outside the checkpoint, and weights that may hold code.

    Args:
        source: folder or hub name.
        trusted: whether the user trusts the source's code.

    Raises:
        ExportError: ``modules.json`` is no list of modules, it or an index of weights names a path
            outside the checkpoint, or the only weights are pickled.
    """
    if listed := load_file_path(source, "modules.json"):
        _check_modules(source, Path(listed))
    # an ONNX folder may have its settings next to its graph
    if (beside := Path(source, "onnx", "modules.json")).is_file():
        _check_modules(source, beside)
    if not Path(source).is_dir():
        return
    for pattern in ("*.safetensors.index.json", "pytorch_model*.index.json"):
        for index in sorted(Path(source).rglob(pattern)):
            _check_index(index, source, trusted=trusted)
    # before a library reads them
    check_memory(_weights(Path(source)), source)
    if trusted:
        return
    pickled = sorted(Path(source).rglob("pytorch_model*.bin"))
    for weights in pickled:
        if not any(weights.parent.glob("*.safetensors")):
            raise ExportError(
                f"{source}: {weights.relative_to(source)} is a pickle, which can run code when it "
                "is opened; store the weights as safetensors, or allow it with --trust-remote-code"
            )


def _check_modules(source: str, listed: Path) -> None:
    """Refuse a list of modules with paths outside the checkpoint."""
    root, local = Path(source).resolve(), Path(source).is_dir()
    shown = listed.relative_to(source).as_posix() if local else listed.name
    for path in _paths(source, listed, shown):
        if _leaves(path):
            raise ExportError(f"{source}: {shown} names {path!r}, a path outside the checkpoint")
        if local and not (listed.parent / path).resolve().is_relative_to(root):
            raise ExportError(f"{source}: {path} is a link that leads outside the folder")


def _check_index(index: Path, source: str, *, trusted: bool) -> None:
    """Refuse parts of weights outside the checkpoint, and pickled ones."""
    shown = index.relative_to(source)
    try:
        files = {str(name) for name in json.loads(index.read_text("utf-8"))["weight_map"].values()}
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise ExportError(f"{source}: {shown} is no index of weights") from error
    for name in sorted(files):
        if _leaves(name):
            raise ExportError(f"{source}: {shown} names {name!r}, a path outside the checkpoint")
        if not trusted and not name.endswith(".safetensors") and _is_used(index):
            raise ExportError(
                f"{source}: {shown} names {name!r}, a pickle, which can run code when it is "
                "opened; store the weights as safetensors, or allow it with --trust-remote-code"
            )


def _is_used(index: Path) -> bool:
    """Whether no safetensors come before the weights of an index."""
    own = index.name.endswith(".safetensors.index.json")
    return own or not any(index.parent.glob("*.safetensors"))


def _weights(folder: Path) -> int:
    """Bytes of a folder's weights, which it may hold in several formats, each perhaps in parts."""
    formats = ("*.safetensors", "pytorch_model*.bin", "*.onnx", "*.onnx_data")
    sizes = [[file.stat().st_size for file in folder.rglob(pattern)] for pattern in formats]
    # a folder may hold an ONNX graph in several precisions
    return max(sum(sizes[0]), sum(sizes[1]), *(max(one, default=0) for one in sizes[2:]))


def _paths(source: str, listed: Path, shown: str = "modules.json") -> list[str]:
    try:
        modules = json.loads(listed.read_text(encoding="utf-8"))
        return [str(module.get("path", "")) for module in modules]
    except (ValueError, AttributeError, TypeError) as error:
        raise ExportError(f"{source}: {shown} is not a list of modules") from error


def _leaves(path: str) -> bool:
    posix, windows = PurePosixPath(path), PureWindowsPath(path)
    return posix.is_absolute() or bool(windows.anchor) or ".." in windows.parts
