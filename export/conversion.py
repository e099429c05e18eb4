"""``docsplit-export to-sentence-transformers``: a folder for its ONNX and OpenVINO backends."""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docsplit.bundles import format as bundle
from docsplit.bundles.format import Bundle
from docsplit.bundles.manifest import TOKENIZER, Manifest
from docsplit.engines.openvino_cpu import openvino_core
from export.errors import ExportError

if TYPE_CHECKING:
    import onnx

# what optimum's feature extraction reads
_OUTPUT = "last_hidden_state"
# the names that sentence-transformers gives such files
_ONNX, _OPENVINO = "onnx/model.onnx", "openvino/openvino_model.xml"
_OPENVINO_INT8 = "openvino/openvino_model_qint8_quantized.xml"


def main(arguments: Sequence[str]) -> int:
    """Convert a bundle; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="docsplit-export to-sentence-transformers",
        description="Write the graphs of a bundle as a folder that opens in sentence-transformers "
        "with backend='onnx' and backend='openvino', and in optimum. It gives the same vectors.",
    )
    parser.add_argument("bundle", metavar="BUNDLE", type=Path, help="the bundle's folder")
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="the new folder")
    given = parser.parse_args(arguments)
    written = convert(bundle.load(given.bundle), given.folder)
    from rich.console import Console

    Console(highlight=False, markup=False).print(
        f"{given.folder}: {', '.join(written)}", soft_wrap=True
    )
    return 0


def convert(opened: Bundle, folder: Path) -> list[str]:
    """Write ``folder``; returns the names of its graphs.

    A graph of a bundle pools and normalises. Those backends expect token vectors, so the new graphs
    give a text's vector at each of its tokens, whose mean it is.

    Raises:
        ExportError: ``folder`` exists, or the bundle has no fp16 form.
    """
    if folder.exists():
        raise ExportError(f"{folder}: already exists")
    if "fp16" not in opened.manifest.precisions:
        raise ExportError(f"{opened.root}: has no fp16 form, which both backends need")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as scratch:
        draft = Path(scratch) / "folder"
        for name in (_ONNX, _OPENVINO, "1_Pooling/config.json", "2_Normalize/config.json"):
            (draft / name).parent.mkdir(parents=True)
        written = [_ONNX, _OPENVINO]
        _write_onnx(opened.graph("fp16"), draft / _ONNX)
        _write_openvino(opened.graph("fp16"), draft / _OPENVINO)
        if "int8" in opened.manifest.precisions:
            written.append(_OPENVINO_INT8)
            _write_openvino(opened.graph("int8"), draft / _OPENVINO_INT8)
        shutil.copy(opened.path(TOKENIZER), draft)
        for name, content in _settings(opened).items():
            (draft / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        draft.rename(folder)
    return written


def _write_onnx(graph: Path, path: Path) -> None:
    import onnx

    from export.storage import save

    model = onnx.load(graph)
    _spread(model)
    save(model, path)


def _spread(model: onnx.ModelProto) -> None:
    """Give the text's vector at each token: float32 ``[batch, tokens, dimensions]``."""
    import numpy as np
    from onnx import helper, numpy_helper

    from export.graph import INPUTS, OUTPUT

    graph = model.graph
    [output] = graph.output
    dimensions = output.type.tensor_type.shape.dim[1]
    for name, value in (("spread_one", [1]), ("spread_axis", [1])):
        graph.initializer.append(numpy_helper.from_array(np.array(value, np.int64), name))
    graph.node.extend(
        [
            helper.make_node("Unsqueeze", [OUTPUT, "spread_axis"], ["spread_row"]),
            helper.make_node("Shape", [INPUTS[1]], ["spread_tokens"]),
            helper.make_node("Concat", ["spread_tokens", "spread_one"], ["spread_shape"], axis=0),
            helper.make_node("Expand", ["spread_row", "spread_shape"], [_OUTPUT]),
        ]
    )
    shape = ["batch", "tokens", dimensions.dim_value or dimensions.dim_param or None]
    element = output.type.tensor_type.elem_type
    del graph.output[:]
    graph.output.append(helper.make_tensor_value_info(_OUTPUT, element, shape))


def _write_openvino(graph: Path, path: Path) -> None:
    from openvino import opset13 as ops

    from export.graph import INPUTS
    from export.storage import save_openvino

    model = openvino_core().read_model(graph)
    mask = next(one for one in model.inputs if INPUTS[1] in one.get_names())
    [result] = model.get_results()
    row = ops.unsqueeze(result.input_value(0), ops.constant([1], dtype="int64"))
    shape = ops.concat([ops.shape_of(mask), ops.constant([1], dtype="int64")], axis=0)
    spread = ops.broadcast(row, shape, broadcast_spec="BIDIRECTIONAL")
    spread.output(0).set_names({_OUTPUT})
    model.remove_result(result)
    model.add_results([ops.result(spread)])
    # the weights keep their types, so the vectors stay the same
    save_openvino(model, path)


def _settings(opened: Bundle) -> dict[str, Any]:
    """The files that describe the folder, by name."""
    from tokenizers import Tokenizer

    manifest = opened.manifest
    tokenizer = Tokenizer.from_file(str(opened.path(TOKENIZER)))
    special = any(one.special for one in tokenizer.get_added_tokens_decoder().values())
    names = ("Transformer", "Pooling", "Normalize")
    places = ("", "1_Pooling", "2_Normalize")
    listed = [
        {"idx": i, "name": str(i), "path": at, "type": f"sentence_transformers.models.{kind}"}
        for i, (kind, at) in enumerate(zip(names, places, strict=True))
    ]
    return {
        "modules.json": listed,
        "config.json": _stand_in(manifest, tokenizer.get_vocab_size()),
        "sentence_bert_config.json": {"max_seq_length": manifest.max_tokens},
        "1_Pooling/config.json": {
            "word_embedding_dimension": manifest.dimensions,
            "pooling_mode_mean_tokens": True,
        },
        "config_sentence_transformers.json": {
            "prompts": manifest.prompts,
            "default_prompt_name": manifest.default_prompt,
            "similarity_fn_name": "cosine",
        },
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_input_names": ["input_ids", "attention_mask"],
            "model_max_length": manifest.max_tokens,
            # a mask hides it, so any token serves; in a text it is special only if others are
            "pad_token": tokenizer.id_to_token(manifest.pad_token_id) or tokenizer.id_to_token(0),
            "split_special_tokens": not special,
        },
    }


def _stand_in(manifest: Manifest, vocabulary: int) -> dict[str, Any]:
    """A configuration that only describes inputs and output. No layer is made of it, and a bundle
    does not hold the checkpoint's."""
    return {
        "model_type": "bert",
        "architectures": ["BertModel"],
        "hidden_size": manifest.dimensions,
        "num_hidden_layers": 0,
        "num_attention_heads": 1,
        "vocab_size": vocabulary,
        "max_position_embeddings": manifest.max_tokens,
        "pad_token_id": manifest.pad_token_id,
    }
