"""Open a sentence-transformers or transformers checkpoint and read how it computes vectors."""

import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from docsplit.bundles.manifest import Pooling
from export.checkpoint.card import matryoshka
from export.checkpoint.files import locate
from export.checkpoint.modules import BRANCH, Tail, read_tail
from export.checkpoint.onnx_folder import UNVERIFIED, graph_of, open_graph
from export.checkpoint.own_code import only_own_code
from export.checkpoint.requirements import (
    check_family,
    check_missing,
    check_size,
    digest,
    fast_tokenizer,
    first_line,
    opening,
    windows,
)
from export.checkpoint.rotary import check_rotations
from export.checkpoint.static import WindowedEmbedding
from export.errors import ExportError


class Checkpoint(Protocol):
    """What every checkpoint has, of an encoder or of a re-ranker."""

    @property
    def name(self) -> str: ...

    @property
    def model(self) -> nn.Module: ...

    @property
    def encoder(self) -> PreTrainedModel: ...

    @property
    def tokenizer(self) -> PreTrainedTokenizerFast: ...

    @property
    def max_tokens(self) -> int: ...


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
        card: the text of its model card.
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
    card: str
    located: str

    @property
    def takes_token_types(self) -> bool:
        """Whether the encoder takes ``token_type_ids``."""
        return "token_type_ids" in inspect.signature(self.encoder.forward).parameters

    @property
    def unverified(self) -> str | None:
        """What nobody checked about the source; None if there is nothing."""
        return UNVERIFIED if getattr(self.encoder, "unverified", False) else None

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
    trust_remote_code: bool = False,
    half: bool = False,
    any_family: bool = False,
) -> Source:
    """Open a checkpoint and check that a bundle can express it.

    Args:
        source: a folder, or a name on the Hugging Face hub.
        source_name: its name in the lineage; by default the hub name or the folder's name.
        max_tokens: window of the bundle, special tokens included; by default the checkpoint's.
        trust_remote_code: run model code in the folder of the weights; long checkpoints need it.
        half: take a folder whose only graph is in fp16.
        any_family: take architectures that are not exported here, because optimum exports them.

    Raises:
        ExportError: the checkpoint cannot be opened, or a bundle cannot express it.
    """
    path, name, card = locate(source, trusted=trust_remote_code)
    graph = graph_of(path, half=half)
    model = _load(path, trust_remote_code) if graph is None else _load_graph(graph, source, half)
    tail = read_tail(model, source)
    encoder = cast(PreTrainedModel, model[0].auto_model)
    if any_family and not isinstance(encoder, PreTrainedModel):
        raise ExportError(f"{source}: optimum exports transformers only; omit --through optimum")
    if isinstance(encoder, PreTrainedModel):
        if not any_family:
            check_family(encoder, source)
        check_rotations(encoder, source)
    check_size(model, source)
    tokenizer = fast_tokenizer(model[0], encoder, source)
    trained, window = windows(model.max_seq_length, encoder, tokenizer, max_tokens, source)
    model.max_seq_length = window
    return Source(
        name=source_name or name,
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


def _load_graph(graph: Path, source: str, half: bool) -> SentenceTransformer:
    try:
        return open_graph(graph, source, half=half).eval()
    except ExportError:
        raise
    except Exception as error:  # four libraries raise different errors
        raise ExportError(
            f"{source}: {graph.name} cannot be opened as an encoder: {first_line(error)}"
        ) from error


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
