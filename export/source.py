"""Open a checkpoint of an encoder or a cross-encoder, and read how it computes."""

import inspect
import json
import shutil
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast, get_args

import numpy as np
import torch
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from sentence_transformers.util import fullname, load_file_path
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from docsplit.bundles.manifest import Pooling
from export import static_branch
from export.attention import check_rotations
from export.errors import ExportError, refused
from export.onnx_folder import UNVERIFIED, OnnxTransformer, graph_of, open_graph
from export.requirements import (
    InText,
    Reader,
    check_family,
    check_missing,
    check_size,
    digest,
    fast_tokenizer,
    locate,
    matryoshka,
    opening,
    windows,
)
from export.static_branch import StaticBranch
from export.tasks import HeldOut

# Static embeddings, as model2vec makes them: a vector for each token, and their mean.

STATIC_MODEL_TYPE = "static"
# They have no positions, so no longest window. These are the usual and the longest one of a bundle,
# which is the longest document that the service takes.
WINDOW, LONGEST = 8_192, 262_144
_PADDING = ("[PAD]", "<pad>")


class StaticEncoder(nn.Module):
    """The vectors of the tokens, in the place of an encoder."""

    def __init__(self, table: nn.EmbeddingBag) -> None:
        super().__init__()
        rows, width = table.weight.shape
        self.rows = nn.Embedding(rows, width, _weight=table.weight.detach(), _freeze=True)
        self.config = SimpleNamespace(
            model_type=STATIC_MODEL_TYPE,
            hidden_size=table.embedding_dim,
            vocab_size=table.num_embeddings,
            max_position_embeddings=LONGEST,
            # no attention; the optimizer wants a divisor of the dimensions
            num_attention_heads=1,
        )

    def get_input_embeddings(self) -> nn.Embedding:
        """The vectors."""
        return self.rows

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> SimpleNamespace:
        """int64 ``[batch, tokens]`` twice → float32 ``[batch, tokens, dimensions]``."""
        return SimpleNamespace(last_hidden_state=self.rows(input_ids))


class WindowedEmbedding(StaticEmbedding):
    """A ``StaticEmbedding`` that reads windows, and batches of padded ids.

    Args:
        module: the checkpoint's module.
    """

    max_seq_length: int = WINDOW

    def __init__(self, module: StaticEmbedding) -> None:
        super().__init__(module.tokenizer, embedding_weights=module.embedding.weight.detach())
        self.tokenizer: Any = _plain(module.tokenizer)

    @property
    def auto_model(self) -> StaticEncoder:
        """The vectors of the tokens."""
        return StaticEncoder(self.embedding)

    def preprocess(self, inputs: Any, prompt: str | None = None, **_: Any) -> dict[str, Tensor]:
        """Ids of texts, one text after the other."""
        texts = [(prompt or "") + text for text in inputs]
        encodings = self.tokenizer.backend_tokenizer.encode_batch(texts)
        return _bags([torch.tensor(one.ids[: self.max_seq_length]) for one in encodings])

    def forward(self, features: dict[str, Tensor], **_: Any) -> dict[str, Any]:
        """Add the means to ``features``, which may hold padded ids and their mask."""
        mask = features.get("attention_mask")
        if mask is not None:
            pairs = zip(features["input_ids"], mask, strict=True)
            features = features | _bags([ids[kept.bool()] for ids, kept in pairs])
        found: dict[str, Any] = super().forward(features)
        return found


def _bags(rows: list[Tensor]) -> dict[str, Tensor]:
    """The form that ``torch.nn.EmbeddingBag`` takes: all ids, and where each text begins."""
    ends = torch.tensor([0, *map(len, rows)]).cumsum(0)
    return {"input_ids": torch.cat(rows).long(), "offsets": ends[:-1]}


def _plain(tokenizer: Any) -> PreTrainedTokenizerFast:
    """The tokenizer without special tokens, which static embeddings do not read."""
    plain = type(tokenizer).from_str(tokenizer.to_str())
    plain.post_processor = None
    plain.no_truncation()
    # padding is masked, so any token serves
    known = [name for name in _PADDING if plain.token_to_id(name) is not None]
    padding = known[0] if known else plain.id_to_token(0)
    made: Any = PreTrainedTokenizerFast
    return cast(PreTrainedTokenizerFast, made(tokenizer_object=plain, pad_token=padding))


# Checkpoints whose only code is this project's: recognise and save them.


def only_own_code(source: str) -> bool:
    """Whether a checkpoint has code and all of it is the static branch, unchanged.

    Such a checkpoint may run its code without the user's consent.

    Args:
        source: folder or hub name.
    """
    try:
        modules, config = _json(source, "modules.json", list), _json(source, "config.json")
    except ExportError:
        return False
    if not config or "auto_map" in config:
        return False
    kinds = {str(module.get("type")) for module in modules if isinstance(module, dict)}
    if {kind for kind in kinds if not kind.startswith("sentence_transformers.")} != {
        static_branch.REFERENCE
    }:
        return False
    code = load_file_path(source, static_branch.FILE)
    own = Path(static_branch.__file__).read_bytes()
    return code is not None and Path(code).read_bytes() == own


def save_with_code(model: SentenceTransformer, folder: Path) -> None:
    """Write a model as ``save_pretrained`` does, with the code of a static branch if it has one.

    sentence-transformers saves the code of a module next to its weights, and looks for it in the
    folder of the model.
    """
    model.save_pretrained(str(folder), create_model_card=False)
    name = static_branch.StaticBranch.__name__
    if all(type(module).__name__ != name for module in model):
        return
    shutil.copyfile(static_branch.__file__, folder / static_branch.FILE)
    listed = folder / "modules.json"
    modules = json.loads(listed.read_text(encoding="utf-8"))
    for module in modules:
        if module["type"].endswith(f".{name}"):
            module["type"] = static_branch.REFERENCE
            (folder / module["path"] / static_branch.FILE).unlink(missing_ok=True)
    listed.write_text(json.dumps(modules, indent=2) + "\n", encoding="utf-8")


# Read the modules of a sentence-transformers checkpoint that follow the transformer.

EXPORTED = (
    "Transformer → Pooling, or StaticEmbedding, and then Dense, Normalize and StaticBranch in any "
    "order"
)
_FIRST = ("Transformer", "Pooling", "StaticEmbedding")
_AFTER = ("Dense", "Normalize")
_FEATURE = "sentence_embedding"
# not the class itself: a checkpoint may bring a copy of it along
BRANCH = StaticBranch.__name__


@dataclass(frozen=True)
class Tail:
    """The modules after the transformer.

    Attributes:
        pooling: how token vectors become one vector.
        after: Dense, Normalize and StaticBranch modules after the pooling, in order.
    """

    pooling: Pooling
    after: tuple[nn.Module, ...]

    @property
    def normalises(self) -> bool:
        """Whether a Normalize module comes last."""
        return bool(self.after) and type(self.after[-1]).__name__ == "Normalize"


def read_tail(model: SentenceTransformer, source: str) -> Tail:
    """The modules of ``model`` after its transformer.

    Raises:
        ExportError: a bundle cannot express a module or one of its settings.
    """
    modules = list(model)
    kinds = [type(m).__name__ for m in modules]
    if isinstance(modules[0], WindowedEmbedding):
        kinds[0] = "StaticEmbedding"
        _check_after(modules, kinds, 1, source)
        return Tail("mean", tuple(modules[1:]))
    if isinstance(modules[0], OnnxTransformer):
        kinds[0] = "Transformer"
        if modules[0].auto_model.roles.pooled:
            return Tail("graph", ())
    after = _AFTER if kinds[0] != type(modules[0]).__name__ else (*_AFTER, BRANCH)
    if kinds[:2] != ["Transformer", "Pooling"]:
        raise _unsupported(kinds, after, source)
    _check_after(modules, kinds, 2, source, after)
    return Tail(_pooling(modules[1], source), tuple(modules[2:]))


def _check_after(
    modules: list[nn.Module],
    kinds: list[str],
    first: int,
    source: str,
    allowed: tuple[str, ...] = _AFTER,
) -> None:
    """Check the modules after the pooling, of which the first is number ``first``."""
    if not set(kinds[first:]) <= set(allowed):
        raise _unsupported(kinds, allowed, source)
    for place, module in enumerate(modules[first:], start=first):
        _check_features(module, kinds[place], source)
        if kinds[place] == "Dense":
            _check_activation(module, place, source)


def _unsupported(kinds: list[str], allowed: tuple[str, ...], source: str) -> ExportError:
    """Names the modules that no bundle has, or all if only their order is wrong."""
    unknown = [kind for kind in kinds if kind not in (*_FIRST, *allowed)]
    what = ", ".join(unknown) or " → ".join(kinds)
    return ExportError(f"{source}: unsupported module {what}; a bundle is {EXPORTED}")


def describe(after: tuple[nn.Module, ...]) -> str:
    """The modules after the pooling in words, e.g. ``Dense 768→256 Tanh, Normalize``."""
    return ", ".join(map(_described, after))


def _described(module: Any) -> str:
    kind = type(module).__name__
    if kind == "Dense":
        activation = type(module.activation_function).__name__
        return f"Dense {module.in_features}→{module.out_features} {activation}"
    return f"{kind} +{module.width}, share {module.share}" if kind == BRANCH else kind


def _pooling(module: nn.Module, source: str) -> Pooling:
    if not getattr(module, "include_prompt", True):
        raise ExportError(
            f"{source}: pooling with include_prompt=False is unsupported; a bundle pools every "
            "token, including the prompt"
        )
    # sentence-transformers 6 has an attribute, 5 a method.
    mode: Any = getattr(module, "pooling_mode", None)
    mode = mode or cast(Any, module).get_pooling_mode_str()
    if mode not in get_args(Pooling):
        shown = mode if isinstance(mode, str) else " + ".join(mode)
        raise ExportError(
            f"{source}: pooling {shown} is unsupported; a bundle has {', '.join(get_args(Pooling))}"
        )
    return cast(Pooling, mode)


def _check_features(module: nn.Module, kind: str, source: str) -> None:
    """Refuse modules that read or write token vectors, which a bundle does not have."""
    for end in ("module_input_name", "module_output_name"):
        feature = getattr(module, end, _FEATURE)
        if feature != _FEATURE:
            raise ExportError(
                f"{source}: {kind} with {end} {feature} is unsupported; after its pooling a "
                f"bundle has only {_FEATURE}"
            )


def _check_activation(dense: nn.Module, place: int, source: str) -> None:
    """sentence-transformers replaces an activation by Tanh if it does not trust its code."""
    listed = load_file_path(source, "modules.json")
    if listed is None:
        return
    folder = json.loads(Path(listed).read_text(encoding="utf-8"))[place]["path"]
    asked = cast(Any, dense).load_config(source, subfolder=folder).get("activation_function", "")
    used = fullname(cast(Any, dense).activation_function)
    if asked and not asked.startswith("torch.") and asked != used:
        raise ExportError(
            f"{source}: Dense with the activation {asked} is unsupported, because its code is part "
            "of the checkpoint; use an activation of torch.nn"
        )


# Open a sentence-transformers or transformers checkpoint and read how it computes vectors.


@dataclass(frozen=True)
class Source:
    """A checkpoint, opened in fp32 on the CPU.

    Attributes:
        name: its name in the bundle's lineage; never a path.
        model: the checkpoint in sentence-transformers, with windows of ``max_tokens``.
        encoder: the transformer of ``model``.
        tokenizer: its fast tokenizer.
        pooling: how token vectors become one vector.
        after: Dense, Normalize and StaticBranch modules after the pooling, in order.
        normalises: whether the last module is a Normalize.
        trained_tokens: the window that its authors configured, special tokens included.
        max_tokens: the window of this export, special tokens included.
        prompts: prompt name → text before every input.
        default_prompt: name of the prompt for callers that name none.
        matryoshka: shorter lengths of vectors that the checkpoint declares.
        located: the folder or hub name that it was opened from.
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
    located: str

    @property
    def takes_token_types(self) -> bool:
        """Whether the encoder takes ``token_type_ids``."""
        return "token_type_ids" in inspect.signature(self.encoder.forward).parameters

    @property
    def unverified(self) -> str | None:
        """What the export could not check in the source; None if it checked everything."""
        return UNVERIFIED if getattr(self.encoder, "unverified", False) else None

    @property
    def settings(self) -> dict[str, object]:
        """How it computes, for the lineage."""
        return {"source_normalises": self.normalises, "source_modules": describe(self.after)}

    def weights_digest(self) -> str:
        """SHA-256 over the named tensors: name, dtype, shape and bytes of each.

        The encoder's tensors come first, then those of each module after the pooling, in order.
        Unlike a digest of the file, it does not depend on the format (safetensors, shards).
        """
        named = sorted(self.encoder.state_dict().items())
        for place, module in enumerate(self.after):
            named += sorted(module.state_dict(prefix=f"after.{place}.").items())
        return digest(named)


def open_source(
    source: str,
    *,
    source_name: str | None = None,
    max_tokens: int | None = None,
    tokenizer: Reader | None = None,
    special_tokens_in_text: InText | None = None,
    trust_remote_code: bool = False,
    half: bool = False,
    any_family: bool = False,
) -> Source:
    """Open a checkpoint and check that a bundle can express it.

    Args:
        source: a folder, or a name on the Hugging Face hub.
        source_name: its name in the lineage; by default the hub name or the folder's name.
        max_tokens: window of the bundle, special tokens included; by default the checkpoint's.
        tokenizer: which tokenizer to take if ``tokenizer.json`` and its class differ.
        special_tokens_in_text: what special tokens in a text are; by default what the files say.
        trust_remote_code: run model code in the folder of the weights; long checkpoints need it.
        half: take a folder whose only graph is in fp16.
        any_family: take architectures that are not exported here, because optimum exports them.

    Raises:
        ExportError: the checkpoint cannot be opened, or a bundle cannot express it.
    """
    path, name, card = locate(source, trusted=trust_remote_code)
    graph = graph_of(path, half=half)
    if graph is None:
        model = _load(path, trust_remote_code)
    else:
        with refused(f"{source}: {graph.name} cannot be opened as an encoder"):
            model = open_graph(graph, source, half=half).eval()
    tail = read_tail(model, source)
    encoder = cast(PreTrainedModel, model[0].auto_model)
    if any_family and not isinstance(encoder, PreTrainedModel):
        raise ExportError(f"{source}: optimum exports transformers only; omit --through optimum")
    if isinstance(encoder, PreTrainedModel):
        if not any_family:
            check_family(encoder, source)
        check_rotations(encoder, source)
    check_size(model, source)
    reader = fast_tokenizer(model[0], encoder, tokenizer, source, in_text=special_tokens_in_text)
    trained, window = windows(model.max_seq_length, encoder, reader, max_tokens, source)
    model.max_seq_length = window
    cut, model.truncate_dim = model.truncate_dim, None
    return Source(
        name=source_name or name,
        model=model,
        encoder=encoder,
        tokenizer=reader,
        pooling=tail.pooling,
        after=tail.after,
        normalises=tail.normalises,
        trained_tokens=trained,
        max_tokens=window,
        prompts={name: text for name, text in model.prompts.items() if text},
        default_prompt=_default_prompt(model),
        matryoshka=matryoshka(encoder.config, card, _dimensions(tail, encoder), cut),
        located=path,
    )


def _load(source: str, trust_remote_code: bool) -> SentenceTransformer:
    with opening(source, "an encoder") as missing:
        model = SentenceTransformer(
            source,
            device="cpu",
            trust_remote_code=trust_remote_code or only_own_code(source),
            model_kwargs={"attn_implementation": "eager"},
        )
    # no vector reads the pooler, which many checkpoints lack
    check_missing([name for name in missing if "pooler" not in name.split(".")], source)
    if isinstance(model[0], StaticEmbedding):
        model[0] = WindowedEmbedding(model[0])
    return model.float().eval()


def _dimensions(tail: Tail, encoder: PreTrainedModel) -> int:
    dimensions = int(encoder.config.hidden_size)
    for module in cast(tuple[Any, ...], tail.after):
        if type(module).__name__ == "Dense":
            dimensions = int(module.out_features)
        elif type(module).__name__ == BRANCH:
            dimensions += int(module.width)
    return dimensions


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


# Open a cross-encoder: a sequence classifier with one output.

# Families with a class for sequence classification that reads the first token or a mean.
PAIR_FAMILIES = (
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
    """

    name: str
    cross_encoder: CrossEncoder
    encoder: PreTrainedModel
    tokenizer: PreTrainedTokenizerFast
    trained_tokens: int
    max_tokens: int
    segment_offset: int
    activation: str

    @property
    def base(self) -> PreTrainedModel:
        """The transformer without the classifier."""
        return cast(PreTrainedModel, self.encoder.base_model)

    @property
    def model(self) -> nn.Module:
        """The module that holds all weights."""
        return self.encoder

    @property
    def unverified(self) -> str | None:
        """Nothing: only graphs of encoders may be unverified."""
        return None

    @property
    def settings(self) -> dict[str, object]:
        """How it computes, for the lineage."""
        return {"source_activation": self.activation}

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
    tokenizer: Reader | None = None,
    special_tokens_in_text: InText | None = None,
    trust_remote_code: bool = False,
) -> PairSource:
    """Open a cross-encoder and check that a bundle can express it; see ``open_source``.

    Raises:
        ExportError: the checkpoint cannot be opened, or a bundle cannot express it.
    """
    path, name, _ = locate(source, trusted=trust_remote_code)
    model = _load_pair(path, trust_remote_code)
    encoder = model.model
    if encoder is None or not type(encoder).__name__.endswith(_CLASSIFIER) or len(list(model)) > 1:
        kinds = " → ".join(type(module).__name__ for module in model)
        raise ExportError(
            f"{source}: a cross-encoder of {kinds} is unsupported; a re-ranker is a transformer "
            "with a classifier of one output"
        )
    check_family(encoder, source, PAIR_FAMILIES)
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
    reader = fast_tokenizer(
        model[0], encoder, tokenizer, source, in_text=special_tokens_in_text, pairs=True
    )
    trained, window = windows(model.max_seq_length, base, reader, max_tokens, source)
    model.max_seq_length = window
    return PairSource(
        name=source_name or name,
        cross_encoder=model,
        encoder=encoder,
        tokenizer=reader,
        trained_tokens=trained,
        max_tokens=window,
        segment_offset=_segment_offset(encoder, reader),
        activation=activation,
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


def _load_pair(source: str, trust_remote_code: bool) -> CrossEncoder:
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


def _json(source: str, name: str, kind: type = dict) -> Any:
    path = load_file_path(source, name)
    if path is None:
        return kind()
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ExportError(f"{source}: {name} is no JSON") from error
    return found if isinstance(found, kind) else kind()


Checkpoint = Source | PairSource


def open_checkpoint(
    source: str, *, reranker: bool, half: bool = False, any_family: bool = False, **options: Any
) -> Checkpoint:
    """Open an encoder as ``open_source`` does, or a cross-encoder as ``open_pair_source`` does."""
    if reranker:
        return open_pair_source(source, **options)
    return open_source(source, half=half, any_family=any_family, **options)
