"""Open a folder with an ONNX graph: what ``optimum-cli`` writes, or a repository's ``onnx``."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules.input_module import InputModule
from sentence_transformers.sentence_transformer import modules as parts
from torch import Tensor, nn
from transformers import AutoConfig, AutoTokenizer

from export.errors import ExportError
from export.storage import is_half, open_session, widen

GRAPH = "model.onnx"
HALF_GRAPH = "model_fp16.onnx"
UNVERIFIED = "its source is a graph in fp16, which nobody compared with weights in fp32"
_TOKENS = ("last_hidden_state", "token_embeddings")
_QUANTISED = ("DynamicQuantizeLinear", "MatMulInteger", "QLinearMatMul", "QuantizeLinear")


class Roles(NamedTuple):
    """Names of a graph's inputs and of the output to use."""

    ids: str
    mask: str
    types: str | None
    output: str
    pooled: bool


class GraphEncoder(nn.Module):
    """A graph in the place of an encoder: its configuration and its weights.

    Args:
        path: the fp32 graph.
        config: the configuration of the model that it was made from.
        half: take a graph in fp16, too, and widen it.

    Attributes:
        unverified: whether the graph was in fp16.
    """

    def __init__(self, path: Path, config: Any, *, half: bool = False) -> None:
        super().__init__()
        self.path = path
        self.config = config
        self.model = onnx.load(path)
        self.unverified = half and is_half(self.model)
        if self.unverified:
            self.model = widen(self.model)
        self.roles = _roles(self.model.graph, path)
        _check_plain(self.model, path)

    def get_input_embeddings(self) -> nn.Embedding:
        """An embedding of the right number of rows, without weights."""
        return nn.Embedding(self.config.vocab_size, 1, device="meta")

    def state_dict(  # type: ignore[override]
        self,
        *,
        destination: dict[str, Any] | None = None,
        prefix: str = "",
        keep_vars: bool = False,
    ) -> dict[str, Any]:
        """The graph's initializers."""
        found = {} if destination is None else destination
        for tensor in self.model.graph.initializer:
            values = np.array(onnx.numpy_helper.to_array(tensor))
            found[prefix + tensor.name] = torch.from_numpy(values)
        return found


class OnnxTransformer(InputModule):
    """Runs a graph by ONNX Runtime, as the first module of a sentence-transformers model."""

    def __init__(self, encoder: GraphEncoder, tokenizer: Any, max_seq_length: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.auto_model = encoder
        self.tokenizer: Any = tokenizer
        self.max_seq_length = max_seq_length
        self._session = (
            open_session(encoder.model, onnxruntime.SessionOptions())
            if encoder.unverified
            else onnxruntime.InferenceSession(encoder.path, providers=["CPUExecutionProvider"])
        )
        self._types = {one.name: one.type for one in self._session.get_inputs()}

    def preprocess(self, inputs: Any, prompt: str | None = None, **_: Any) -> dict[str, Any]:
        """Ids and mask of texts, padded to the longest."""
        texts = [(prompt or "") + text for text in inputs]
        options = {"padding": True, "truncation": True, "max_length": self.max_seq_length}
        return dict(self.tokenizer(texts, **options, return_tensors="pt"))

    def forward(self, features: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Add the graph's output to ``features``."""
        roles, ids = self.auto_model.roles, features["input_ids"]
        given = {roles.ids: ids, roles.mask: features["attention_mask"]}
        if roles.types is not None:
            given[roles.types] = torch.zeros_like(ids)
        fed = {name: self._cast(name, value) for name, value in given.items()}
        [values] = self._session.run([roles.output], fed)
        name = "sentence_embedding" if roles.pooled else "token_embeddings"
        return features | {name: torch.from_numpy(values)}

    def _cast(self, name: str, value: Tensor) -> np.ndarray:
        return value.numpy().astype(np.int32 if "int32" in self._types[name] else np.int64)

    def save(self, output_path: str, *args: Any, **options: Any) -> None:
        """Not needed: the folder exists."""
        raise NotImplementedError


def graph_of(source: str, *, half: bool = False) -> Path | None:
    """The fp32 graph of a folder; None if it is a checkpoint, or no folder.

    Args:
        source: folder or hub name.
        half: take a graph in fp16 if there is none in fp32.

    Raises:
        ExportError: the folder has graphs but none of these.
    """
    folder = Path(source)
    weights = [*folder.rglob("*.safetensors"), *folder.rglob("pytorch_model*.bin")]
    if not folder.is_dir() or any(_is_transformer(file, folder) for file in weights):
        return None
    places = (folder, folder / "onnx")
    for name in (GRAPH, HALF_GRAPH) if half else (GRAPH,):
        for place in places:
            if (place / name).is_file():
                return place / name
    others = sorted(file.name for place in places for file in place.glob("*.onnx"))
    if others:
        raise ExportError(
            f"{source}: has {', '.join(others)}, but no {GRAPH} in fp32 to make a bundle of and to "
            "compare it with" + (f"; --accept takes {HALF_GRAPH}" if HALF_GRAPH in others else "")
        )
    return None


def open_graph(graph: Path, source: str, *, half: bool = False) -> SentenceTransformer:
    """A model that computes with ``graph``, and pools and normalises as its folder says.

    Args:
        graph: the ONNX file.
        source: the folder's name in messages.
        half: take a graph in fp16, too.

    Raises:
        ExportError: the graph is not in fp32, or has other inputs or outputs.
    """
    folder = _settings_folder(graph)
    config = AutoConfig.from_pretrained(folder)
    width, heads = int(config.hidden_size), int(config.num_attention_heads)
    if heads < 1 or width % heads:
        raise ExportError(
            f"{source}: config.json names {heads} attention heads for vectors of {width} "
            "dimensions; put the configuration of the graph's model there"
        )
    encoder = GraphEncoder(graph, config, half=half)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    settings = _json(folder / "sentence_bert_config.json")
    longest = settings.get("max_seq_length") or tokenizer.model_max_length
    longest = min(int(longest), int(config.max_position_embeddings))
    modules: list[nn.Module] = [OnnxTransformer(encoder, tokenizer, longest)]
    if not encoder.roles.pooled:
        modules += _modules(folder, int(config.hidden_size), source)
    prompts = _json(folder / "config_sentence_transformers.json")
    return SentenceTransformer(
        modules=modules,
        device="cpu",
        prompts=prompts.get("prompts"),
        default_prompt_name=prompts.get("default_prompt_name"),
    )


def _modules(folder: Path, dimensions: int, source: str) -> list[nn.Module]:
    """Modules after the transformer; mean pooling without ``modules.json``, as for a checkpoint."""
    if not (folder / "modules.json").is_file():
        return [parts.Pooling(dimensions, "mean")]
    found: list[nn.Module] = []
    for module in json.loads((folder / "modules.json").read_text(encoding="utf-8"))[1:]:
        kind = module["type"].rpartition(".")[2]
        if kind not in ("Pooling", "Dense", "Normalize"):
            raise ExportError(f"{source}: unsupported module {kind}")
        if kind == "Normalize":
            found.append(parts.Normalize())
        else:
            found.append(getattr(parts, kind).load(str(folder), subfolder=module["path"]))
    return found


def _roles(graph: onnx.GraphProto, path: Path) -> Roles:
    constants = {tensor.name for tensor in graph.initializer}
    inputs = [value.name for value in graph.input if value.name not in constants]
    if not inputs:
        raise ExportError(f"{path}: is no complete ONNX graph")
    masks = [name for name in inputs if "mask" in name]
    types = [name for name in inputs if "type" in name or "segment" in name]
    rest = [name for name in inputs if name not in (*masks, *types)]
    if len(masks) != 1 or len(types) > 1 or len(rest) != 1:
        raise ExportError(
            f"{path}: the inputs {', '.join(inputs)} are unsupported; a graph takes token ids, an "
            "attention mask and perhaps token types"
        )
    ranks = {value.name: len(value.type.tensor_type.shape.dim) for value in graph.output}
    tokens = [name for name in _TOKENS if ranks.get(name) == 3]
    tokens += [name for name, rank in ranks.items() if rank == 3]
    pooled = [name for name, rank in ranks.items() if rank == 2 and "sentence" in name]
    whole = pooled and not (_settings_folder(path) / "modules.json").is_file()
    if not tokens and not pooled:
        raise ExportError(
            f"{path}: the outputs {', '.join(ranks)} are unsupported; a graph gives token vectors "
            "of three dimensions, or sentence_embedding of two"
        )
    pools = bool(whole or not tokens)
    output = pooled[0] if pools else tokens[0]
    return Roles(rest[0], masks[0], types[0] if types else None, output, pools)


def _check_plain(model: onnx.ModelProto, path: Path) -> None:
    quantised = sorted({n.op_type for n in model.graph.node} & set(_QUANTISED))
    foreign = sorted({n.op_type for n in model.graph.node if n.domain not in ("", "ai.onnx")})
    half = is_half(model)
    found = ", ".join(quantised or foreign) or ("weights in fp16" if half else "")
    if found:
        raise ExportError(
            f"{path}: has {found}; a bundle needs the graph in fp32, before it is optimised or "
            "quantised" + ("" if quantised or foreign else "; --accept takes fp16")
        )


def _is_transformer(weights: Path, folder: Path) -> bool:
    """Whether a file holds weights of the transformer, not of a module after it."""
    inside = weights.relative_to(folder).parts[:-1]
    return not inside or inside[0].startswith("0_")


def _settings_folder(graph: Path) -> Path:
    """The folder of the tokenizer: the graph's, or for ``onnx`` the one above."""
    here = graph.parent
    return here if (here / "config.json").is_file() or here.name != "onnx" else here.parent


def _json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    found = json.loads(path.read_text(encoding="utf-8"))
    return found if isinstance(found, dict) else {}
