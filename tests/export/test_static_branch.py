"""Bundles of encoders with a static branch."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize

from docsplit.bundles.format import Bundle, load
from export.errors import ExportError
from export.pipeline import Request, export
from export.source import only_own_code, open_source, save_with_code
from tests.export.checkpoints import encode, opened
from training.settings import BackboneSettings
from training.trainer.output import save_joined

pytestmark = pytest.mark.usefixtures("neighbours_of_random_encoders")
WIDTH = 24


@pytest.fixture(scope="module")
def joined(shallow_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny BERT with a static branch, shortened to 40 dimensions."""
    folder = tmp_path_factory.mktemp("joined") / "joined"
    model = SentenceTransformer(str(shallow_folder), device="cpu")
    torch.manual_seed(1)
    vectors = torch.randn(len(model.tokenizer), WIDTH)
    vectors[model.tokenizer.all_special_ids] = 0
    settings = BackboneSettings(path=str(shallow_folder), max_tokens=64, static_share=0.4)
    save_joined(vectors, settings, folder)
    model = SentenceTransformer(str(folder), device="cpu", trust_remote_code=True)
    dense = Dense(32 + WIDTH, 40, bias=False, activation_function=torch.nn.Identity())
    torch.nn.init.orthogonal_(dense.linear.weight)
    model.append(dense)
    model.append(Normalize())
    shortened = folder.with_name("shortened")
    save_with_code(model, shortened)
    return shortened


@pytest.fixture(scope="module")
def bundle(joined: Path, text_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    dest = tmp_path_factory.mktemp("bundles") / "joined"
    export(
        Request(
            source=str(joined),
            dest=dest,
            licence="Apache-2.0",
            max_tokens=64,
            calibration=text_file,
            paragraphs=200,
        )
    )
    return load(dest)


def test_both_graphs_compute_the_checkpoint(
    bundle: Bundle, joined: Path, sentences: list[str]
) -> None:
    model = SentenceTransformer(str(joined), device="cpu", trust_remote_code=True)
    model.max_seq_length = 64
    sentences = sentences[:32]
    expected = model.encode(sentences)
    for precision, runtime, least in (
        ("fp16", "onnx", 0.9999),
        ("fp16", "openvino", 0.9999),
        ("int8", "openvino", 0.98),
    ):
        engine = opened(bundle, precision, runtime)  # type: ignore[arg-type]
        for size in (1, 7):
            found = encode(bundle, sentences, size=size, engine=engine)
            assert found.shape == (32, 40)
            assert (found * expected).sum(1).min() > least, (precision, runtime, size)
            assert (found * np.roll(expected, 1, 0)).sum(1).min() < least


def test_the_manifest_names_the_branch_and_its_kernels(bundle: Bundle) -> None:
    made = bundle.manifest
    assert made.dimensions == 40
    assert made.lineage.settings["source_modules"] == (
        "StaticBranch +24, share 0.4, Normalize, Dense 56→40 Identity, Normalize"
    )
    assert made.precisions["fp16"].kernels["Attention"] == 1


def test_the_table_takes_one_byte_for_a_value(bundle: Bundle, shallow_folder: Path) -> None:
    import onnx

    graph = onnx.load(bundle.graph("fp16")).graph
    tables = [t for t in graph.initializer if list(t.dims)[-1:] == [WIDTH] and len(t.dims) == 2]
    assert [t.data_type for t in tables] == [onnx.TensorProto.INT8]


def test_only_unchanged_code_of_our_own_runs_without_consent(joined: Path, tmp_path: Path) -> None:
    assert only_own_code(str(joined))
    assert open_source(str(joined)).max_tokens == 64
    changed = tmp_path / "changed"
    shutil.copytree(joined, changed)
    with (changed / "static_branch.py").open("a", encoding="utf-8") as file:
        file.write("\n# one line more\n")
    assert not only_own_code(str(changed))
    with pytest.raises(ExportError, match="trust-remote-code"):
        open_source(str(changed))
    assert open_source(str(changed), trust_remote_code=True).max_tokens == 64


def test_another_module_beside_the_branch_needs_consent(joined: Path, tmp_path: Path) -> None:
    changed = tmp_path / "changed"
    shutil.copytree(joined, changed)
    listed = changed / "modules.json"
    listed.write_text(
        listed.read_text().replace("sentence_transformers.base.modules.dense.Dense", "evil.Dense")
    )
    assert "evil.Dense" in listed.read_text()
    assert not only_own_code(str(changed))
