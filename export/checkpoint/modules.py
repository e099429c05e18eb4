"""Read the modules of a sentence-transformers checkpoint that follow the transformer."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast, get_args

from sentence_transformers import SentenceTransformer
from sentence_transformers.util import fullname, load_file_path
from torch import nn

from docsplit.bundles.manifest import Pooling
from export.checkpoint.onnx_folder import OnnxTransformer
from export.checkpoint.static import WindowedEmbedding
from export.checkpoint.static_branch import StaticBranch
from export.errors import ExportError

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
