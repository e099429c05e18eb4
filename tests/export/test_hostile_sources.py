"""Checkpoints that are broken or try to read outside their folder."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sparse_encoder.modules import MLMTransformer, SpladePooling
from torch import nn
from transformers import BertConfig, BertForMaskedLM

from export import requirements
from export.errors import ExportError
from export.source import open_source
from tests.export.conftest import SIZES, save_sentence_transformer


@pytest.fixture
def folder(bert_folder: Path, tmp_path: Path) -> Path:
    return save_sentence_transformer(
        bert_folder, tmp_path / "checkpoint", pooling="mean", normalise=True
    )


def cut(name: str) -> Callable[[Path], None]:
    def harm(folder: Path) -> None:
        data = (folder / name).read_bytes()
        (folder / name).write_bytes(data[: len(data) // 2])

    return harm


def replace(name: str, content: str) -> Callable[[Path], None]:
    def harm(folder: Path) -> None:
        (folder / name).write_text(content)

    return harm


def name_module(path: str) -> Callable[[Path], None]:
    def harm(folder: Path) -> None:
        modules = json.loads((folder / "modules.json").read_text())
        modules[1]["path"] = path
        (folder / "modules.json").write_text(json.dumps(modules))

    return harm


def link_outside(folder: Path) -> None:
    shutil.move(folder / "1_Pooling", folder.parent / "elsewhere")
    (folder / "1_Pooling").symlink_to(folder.parent / "elsewhere")


def pickle_weights(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    torch.save(weights, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def index_weights(name: str, content: str | None = None) -> Callable[[Path], None]:
    """An index whose weights are all in one file of that name."""

    def harm(folder: Path) -> None:
        weights = load_file(folder / "model.safetensors")
        kind = "model.safetensors" if name.endswith("s") else "pytorch_model.bin"
        torch.save(weights, folder / "weights.pkl")
        (folder / "model.safetensors").rename(folder.parent / "outside.safetensors")
        (folder / f"{kind}.index.json").write_text(
            content or json.dumps({"metadata": {}, "weight_map": dict.fromkeys(weights, name)})
        )

    return harm


def set_hidden_size(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"hidden_size": "32"}))


def inflate(folder: Path) -> None:
    """A file of which the disk holds only the beginning."""
    os.truncate(folder / "model.safetensors", 9 * 10**12)


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (cut("model.safetensors"), r"encoder: model\.safetensors is damaged .* not fully covered"),
        (replace("model.safetensors", ""), r"encoder: model\.safetensors is damaged"),
        (cut("config.json"), r"cannot be opened as an encoder: .*config\.json"),
        (replace("config.json", "[]"), "cannot be opened as an encoder"),
        (cut("tokenizer.json"), r"encoder: tokenizer\.json is no valid JSON"),
        (cut("tokenizer_config.json"), r"encoder: tokenizer_config\.json is no valid JSON"),
        (lambda folder: (folder / "tokenizer.json").unlink(), r"tokenizer\.json is missing"),
        (set_hidden_size, r"Validation error for field 'hidden_size': .*int"),
        (cut("modules.json"), r"modules\.json is not a list of modules"),
        (replace("modules.json", '{"a": 1}'), r"modules\.json is not a list of modules"),
        (name_module("../elsewhere"), r"modules\.json names '\.\./elsewhere', a path outside"),
        (name_module("/etc"), r"modules\.json names '/etc', a path outside"),
        (name_module("C:\\weights"), "a path outside"),
        (link_outside, "1_Pooling is a link that leads outside"),
        (pickle_weights, r"pytorch_model\.bin is a pickle, which can run code"),
        (
            index_weights("../outside.safetensors"),
            r"model\.safetensors\.index\.json names '\.\./outside.safetensors', a path outside",
        ),
        (
            index_weights("weights.pkl"),
            r"index\.json names 'weights\.pkl', a pickle, which can run",
        ),
        (index_weights("s", "[]"), r"model\.safetensors\.index\.json is no index of weights"),
        (inflate, r"has 9000\.0 GB of weights; their export needs some 45000 GB of memory, this"),
    ],
)
def test_a_hostile_checkpoint_is_refused_by_name(
    folder: Path, harm: Callable[[Path], None], reason: str
) -> None:
    open_source(str(folder))
    harm(folder)
    with pytest.raises(ExportError, match=rf"checkpoint: .*{reason}"):
        open_source(str(folder))


def test_pickled_weights_need_consent(folder: Path) -> None:
    digest = open_source(str(folder)).weights_digest()
    pickle_weights(folder)
    assert open_source(str(folder), trust_remote_code=True).weights_digest() == digest


def test_weights_that_memory_cannot_hold_as_fp32_are_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = load_file(folder / "model.safetensors")
    save_file({name: one.half() for name, one in weights.items()}, folder / "model.safetensors")
    bytes_of_file = (folder / "model.safetensors").stat().st_size
    monkeypatch.setattr(requirements, "installed_memory", lambda: 6 * bytes_of_file)
    with pytest.raises(ExportError, match=r"checkpoint: has .* GB of weights; their export needs"):
        open_source(str(folder))
    monkeypatch.setattr(requirements, "installed_memory", lambda: 12 * bytes_of_file)
    open_source(str(folder))


def test_a_sparse_head_is_refused_by_name(bert_folder: Path, tmp_path: Path) -> None:
    encoder = shutil.copytree(bert_folder, tmp_path / "encoder")
    config = BertConfig(vocab_size=600, max_position_embeddings=96, **SIZES)
    BertForMaskedLM(config).save_pretrained(encoder)
    modules: list[nn.Module] = [MLMTransformer(str(encoder)), SpladePooling()]
    SentenceTransformer(modules=modules, device="cpu").save_pretrained(
        str(tmp_path / "sparse"), create_model_card=False
    )
    with pytest.raises(ExportError, match=r"unsupported module .*SpladePooling"):
        open_source(str(tmp_path / "sparse"))
